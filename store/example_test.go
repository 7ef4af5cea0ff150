package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := store.Open(store.Options{Path: filepath.Join(dir, "state.db")})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	ctx := context.Background()
	o, err := origin.Parse("https://a.example")
	if err != nil {
		log.Fatal(err)
	}
	fetched := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	for _, body := range []string{"User-agent: *\nDisallow: /a\n", "User-agent: *\nDisallow: /b\n"} {
		sum := sha256.Sum256([]byte(body))
		snap := &robots.Snapshot{
			Answer: robots.Answer{
				Origin: o, Availability: robots.Found, Status: 200, Fetched: fetched,
				Expires: fetched.Add(24 * time.Hour), SHA256: hex.EncodeToString(sum[:]), Body: []byte(body),
			},
		}
		if err := s.Save(ctx, snap, nil); err != nil {
			log.Fatal(err)
		}
		fetched = fetched.Add(24 * time.Hour)
	}

	snap, err := s.Load(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s %q\n", snap.Origin, snap.State(), snap.Body)
	versions, err := s.Versions(ctx, o, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range versions {
		fmt.Println(v.FirstSeen.Format(time.DateOnly), v.SHA256[:8], v.Size)
	}
	// Output:
	// https://a.example found "User-agent: *\nDisallow: /b\n"
	// 2026-03-02 93f0f3b7 27
	// 2026-03-01 f26c1148 27
}
