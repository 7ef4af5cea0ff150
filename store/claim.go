package store

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// claims are where the instances claim fetches of robots.txt files.
type claims interface {
	// claim claims the file of o for holder, or prolongs its claim. It reports false if another holder has the claim.
	claim(ctx context.Context, o origin.Origin, holder string) (bool, error)
	isClaimed(ctx context.Context, o origin.Origin) (bool, error)
	// unclaim ends the claim of holder.
	unclaim(ctx context.Context, o origin.Origin, holder string)
}

// claimFile implements robots.SharedStore.Claim. The claim is renewed, three times in lasts, until release is called.
func claimFile(ctx context.Context, c claims, o origin.Origin, lasts time.Duration) (release func(), claimed bool) {
	holder := rand.Text()
	claimed, err := c.claim(ctx, o, holder)
	if err != nil {
		return func() {}, true
	}
	if !claimed {
		return nil, false
	}
	ctx = context.WithoutCancel(ctx)
	renewing, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for renewing.Err() == nil {
			sleep(renewing, lasts/3)
			if renewing.Err() == nil {
				_, _ = c.claim(renewing, o, holder)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		c.unclaim(ctx, o, holder)
	}, true
}

// awaitClaim implements robots.SharedStore.AwaitClaim. It asks up to 50 times a second, and less often after a while.
func awaitClaim(ctx context.Context, c claims, o origin.Origin) {
	for wait := 20 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 320*time.Millisecond) {
		sleep(ctx, wait)
		if claimed, err := c.isClaimed(ctx, o); err != nil || !claimed {
			return
		}
	}
}
