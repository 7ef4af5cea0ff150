package audit

import (
	"reflect"
	"strings"
	"time"
)

// Columns are the names of the fields of a Record, which are the same in all outputs, in the order of Values.
var Columns = columns()

// columnFields are the indexes of the fields of Columns in a Record.
var columnFields []int

func columns() (names []string) {
	t := reflect.TypeFor[Record]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
			columnFields = append(columnFields, i)
		}
	}
	return names
}

// Values appends the values of the fields of r to dst: strings, int64, time.Time and time.Duration. The value of an
// unknown field is zero.
func (r *Record) Values(dst []any) []any {
	v := reflect.ValueOf(r).Elem()
	for _, i := range columnFields {
		f := v.Field(i)
		switch value := f.Interface().(type) {
		case ID:
			dst = append(dst, value.String())
		case time.Time:
			dst = append(dst, value)
		case Millis:
			dst = append(dst, time.Duration(value))
		default:
			dst = append(dst, plainValue(f))
		}
	}
	return dst
}

// plainValue returns a string or an int64.
func plainValue(f reflect.Value) any {
	switch {
	case f.CanInt():
		return f.Int()
	case f.CanUint():
		return int64(f.Uint())
	}
	return f.String()
}

// AppendJSON appends r as one JSON object without white space, as Lines have it.
func (r *Record) AppendJSON(b []byte) []byte { return appendRecord(b, r) }
