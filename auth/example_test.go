package auth_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/auth"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "crawlers.htpasswd") // written by htpasswd -B
	line := "news:$2y$05$rVZXP8wpwaQSqZ8jld7REu/FVsFmWDbmEOLKqmyTBTHyo4fK7pg2G\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		log.Fatal(err)
	}
	users, err := auth.LoadUsers(path)
	if err != nil {
		log.Fatal(err)
	}
	from := netip.MustParseAddr("192.0.2.1")
	for _, password := range []string{"s3cr3t", "guess"} {
		err := users.Check(context.Background(), from, "news", password)
		var rejected *auth.RejectedError
		fmt.Println(err, errors.As(err, &rejected))
	}
	// Output:
	// <nil> false
	// invalid user or password true
}
