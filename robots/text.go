package robots

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// UnreachableText returns the reason why s is unreachable for clients, without addresses.
func (s *Snapshot) UnreachableText() string {
	var own interface{ ClientText(string) string }
	switch {
	case errors.As(s.Err, &own):
		return fetch.ErrorText(s.Cause, s.Err)
	case s.Flags&RedirectRefused != 0 && s.Err != nil:
		return s.Err.Error() // a fetch.RefusedError, which is written for clients
	case s.State() == "html":
		return "a web page stands in its place"
	case s.Status != 0:
		return fmt.Sprintf("the origin answered %d %s", s.Status, http.StatusText(s.Status))
	}
	return fetch.ErrorText(s.Cause, s.Err)
}
