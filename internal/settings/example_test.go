package settings_test

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/settings"
)

type Config struct {
	Listen string
	Grace  time.Duration `range:"0s..1h"`
}

var schema = settings.NewSchema(Config{}, map[reflect.Type]settings.Scalar{
	reflect.TypeFor[time.Duration](): settings.Of("a duration such as 5s", time.ParseDuration, time.Duration.String),
}, map[string]settings.Scalar{
	"": settings.Of("an address", func(s string) (string, error) {
		if s == "" {
			return "", errors.New("it must not be empty")
		}
		return s, nil
	}, func(s string) string { return s }),
})

func Example() {
	c := Config{Listen: ":80", Grace: 5 * time.Second}
	d := schema.NewDecoder(&c)
	d.ReadYAML("program.yaml", []byte("# a comment\nlisten: \"\"\ngraec: 1s\n"))
	d.ReadEnv("PROGRAM_", []string{"PROGRAM_GRACE=2h"})
	fmt.Println(d.Err())
	// Output:
	// 3 faults
	// program.yaml:2:9: listen: found "", expected an address; it must not be empty
	// program.yaml:3:1: graec: unknown key; did you mean grace?
	// PROGRAM_GRACE: grace: found 2h0m0s, expected at most 1h
}
