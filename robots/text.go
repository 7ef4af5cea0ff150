package robots

import (
	"errors"
	"fmt"
	"net/http"
)

// UnreachableText says for a client why s is unreachable, without addresses.
func (s *Snapshot) UnreachableText() string {
	var own interface{ ClientText(string) string }
	switch {
	case errors.As(s.Err, &own):
		return ErrorText(s.Cause, s.Err)
	case s.Marks&RedirectRefused != 0 && s.Err != nil:
		return s.Err.Error() // a RefusedError, which is written for clients
	case s.State() == "html":
		return "a web page stands in its place"
	case s.Status != 0:
		return fmt.Sprintf("the origin answered %d %s", s.Status, http.StatusText(s.Status))
	}
	return ErrorText(s.Cause, s.Err)
}
