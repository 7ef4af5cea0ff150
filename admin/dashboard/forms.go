package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/robotsproxy/robotsproxy/admin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// form is a form with what was typed into it.
type form struct {
	Values url.Values
	Faults map[string]string // by the name of the field; "" for those of no field
	Next   string            // the path to show afterwards
}

// input is a field of a form.
type input struct{ Name, Label, Type, Value, Hint, Fault string }

// newForm returns the form of a request: that of its body, or a new one with the values in its query. Values have no
// spaces around them.
func newForm(v *view, usual string) (form, error) {
	values := v.URL.Query()
	if v.Method == http.MethodPost {
		v.Body = http.MaxBytesReader(v.w, v.Body, maxForm)
		if err := v.ParseForm(); err != nil {
			return form{}, &fault{http.StatusBadRequest, "The form can not be read: " + err.Error()}
		}
		values = v.PostForm
	}
	f := form{Values: url.Values{}, Faults: make(map[string]string)}
	for name := range values {
		f.Values.Set(name, strings.TrimSpace(values.Get(name)))
	}
	f.Next = ownPath(cmp.Or(f.Get("next"), usual))
	return f, nil
}

// Get returns what was typed into a field.
func (f form) Get(name string) string { return f.Values.Get(name) }

// Field returns a field for the template.
func (f form) Field(name, label, kind, hint string) input {
	return input{name, label, kind, f.Get(name), hint, f.Faults[name]}
}

// Fault returns what is wrong with the form as a whole.
func (f form) Fault() string { return f.Faults[""] }

// require notes a fault of each field that is empty. It reports whether there is none.
func (f form) require(names ...string) bool {
	for _, name := range names {
		if f.Get(name) == "" {
			f.Faults[name] = "This is needed."
		}
	}
	return len(f.Faults) == 0
}

// orderFields are the fields of the form for the fields of an intervention.
var orderFields = map[string]string{"delay": "delay_seconds", "until": "for_seconds"}

// note notes the faults in err, and returns the status of the response.
func (f form) note(err error) int {
	var field *policy.FieldError
	switch {
	case errors.As(err, &field):
		f.Faults[cmp.Or(orderFields[field.Field], field.Field)] = strings.TrimPrefix(field.Error(), "policy: ")
	case errors.As(err, new(*entryError)):
		for line := range strings.Lines(err.Error()) {
			key, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
			f.Faults[key] = strings.TrimPrefix(f.Faults[key]+"; "+text, "; ")
		}
	default:
		f.Faults[""] = err.Error()
	}
	return admin.StatusOf(err)
}

// entryError is an error with a line for each fault, "key: text".
type entryError struct{ error }

func (e *entryError) Unwrap() error { return e.error }
