package settings

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Scalar says how values of one type, or strings of one kind, are read and written. Of and OneOf return Scalars.
type Scalar struct {
	expected string
	words    []string // the closed list of OneOf
	unquoted bool
	secret   bool
	parse    func(string) (any, error)
	format   func(any) string
}

// ErrNoHint is the error of a parser that adds nothing to "found this, expected that".
var ErrNoHint = errors.New("no hint")

// Of returns a Scalar for T. expected completes a sentence: "expected a duration such as 24h". The error of parse is a
// hint after that sentence, or ErrNoHint. format is the inverse of parse.
func Of[T any](expected string, parse func(string) (T, error), format func(T) string) Scalar {
	return Scalar{
		expected: expected,
		parse:    func(s string) (any, error) { return parse(s) },
		format:   func(v any) string { return format(v.(T)) },
	}
}

// OneOf returns a Scalar for a closed list of values with the given names.
func OneOf[T any](name func(T) string, values ...T) Scalar {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = name(v)
	}
	last := len(words) - 1
	s := Of(strings.Join(words[:last], ", ")+" or "+words[last], func(s string) (T, error) {
		for i, w := range words {
			if s == w {
				return values[i], nil
			}
		}
		var zero T
		return zero, ErrNoHint
	}, name)
	s.words = words
	return s
}

// Unquoted returns s for values that YAML must not quote, such as numbers: a quoted one is a problem.
func (s Scalar) Unquoted() Scalar {
	s.unquoted = true
	return s
}

// Secret returns s for values that may hold a password: problems do not repeat them.
func (s Scalar) Secret() Scalar {
	s.secret = true
	return s
}

// Expected completes the sentence "expected ...".
func (s Scalar) Expected() string { return s.expected }

// Format returns the text that Parse reads as v.
func (s Scalar) Format(v any) string { return s.format(v) }

// Parse parses text. Its error reads "found ..., expected ...".
func (s Scalar) Parse(text string) (any, error) {
	v, err := s.parse(text)
	if err != nil {
		return nil, fmt.Errorf("found %s, expected %s%s", s.found(text), s.expected, s.hint(text, err))
	}
	return v, nil
}

func (s Scalar) found(text string) string {
	if s.secret {
		return "something else (not shown, it may hold a password)"
	}
	return Quote(text)
}

func (s Scalar) hint(text string, err error) string {
	if err != ErrNoHint {
		return "; " + err.Error()
	}
	if near := Suggest(text, s.words); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// outside returns the bound of the "range" tag that value exceeds, or "".
func (s Scalar) outside(value any, tag reflect.StructTag) string {
	low, high, bounded := strings.Cut(tag.Get("range"), "..")
	why := ""
	if w := tag.Get("why"); w != "" {
		why = " (" + w + ")"
	}
	number := func(bound string) int64 {
		v, _ := s.parse(bound) // mustRange parsed it before
		return reflect.ValueOf(v).Int()
	}
	switch {
	case !bounded:
		return ""
	case reflect.ValueOf(value).Int() < number(low):
		return "at least " + low + why
	case high != "" && reflect.ValueOf(value).Int() > number(high):
		return "at most " + high + why
	}
	return ""
}

// mustRange panics if the "range" tag of a field cannot be parsed.
func (s Scalar) mustRange(field string, tag reflect.StructTag) {
	text := tag.Get("range")
	if text == "" {
		return
	}
	low, high, ok := strings.Cut(text, "..")
	bounds := []string{low}
	if high != "" {
		bounds = append(bounds, high)
	}
	for _, bound := range bounds {
		if v, err := s.parse(bound); err != nil || !ok || !reflect.ValueOf(v).CanInt() {
			panic("settings: cannot read the range " + text + " of the field " + field)
		}
	}
}
