package limit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// TestSlots checks that a client has one slot at a time, that another client waits for one release at most, and that
// nothing is left of a client that waited in vain.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(1)
		order := make(chan string, 10)
		take := func(ctx context.Context, client string) (leave func()) {
			leave, err := slots.Take(ctx, client)
			if err != nil {
				order <- client + " gone"
				return func() {}
			}
			order <- client
			return leave
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		first := take(t.Context(), "one")
		for range 3 {
			go func() { take(t.Context(), "one")() }()
		}
		synctest.Wait()
		go take(ctx, "one")
		go take(ctx, "third")
		synctest.Wait()
		cancel(errors.New("left"))
		synctest.Wait()
		go func() { take(t.Context(), "other")() }()
		synctest.Wait()
		first()
		synctest.Wait()
		close(order)
		var all []string
		for client := range order {
			all = append(all, client)
		}
		got := strings.Join(all, ", ")
		if want := "one, one gone, third gone, other, one, one, one"; got != want && got != "one, third gone, one gone, other, one, one, one" {
			t.Errorf("the slots went to %s, want %s", got, want)
		}
		if len(slots.clients) != 0 || len(slots.all) != 0 {
			t.Errorf("%d clients and %d slots are left", len(slots.clients), len(slots.all))
		}
	})
}
