package auditview

import (
	"context"
	"errors"
	"io"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Uses shows for each host what it stated about the use of its content, and for which purposes it was asked. It returns
// whether there are more rows than f.Limit.
func Uses(ctx context.Context, w io.Writer, o Options, records audit.Reader, f audit.Filter) (more bool, err error) {
	p := NewPrinter(
		w, o, Column{Name: "host", Title: "host", Least: leastText}, Column{Name: "purpose", Title: "purpose"},
		Column{Name: "requests", Title: "requests"}, Column{Name: "fetched", Title: "fetched"},
		Column{Name: "fetched_against", Title: "against"}, Column{Name: "refused", Title: "refused"},
		Column{Name: "refused_by_preference", Title: "by preference"}, Column{Name: "usage", Title: "stated", Least: leastText},
	)
	limit, rows := f.Limit, 0
	if limit > 0 {
		f.Limit++
	}
	for u, err := range records.Uses(ctx, f) {
		if err != nil {
			return false, errors.Join(err, p.Close())
		}
		if rows++; limit > 0 && rows > limit {
			return true, p.Close()
		}
		if err := p.Row(key(u.Host), key(u.Purpose), u.Requests, u.Fetched, against(u), u.Refused, u.ByPreference, key(u.Usage)); err != nil {
			return false, err
		}
	}
	return false, p.Close()
}

// against returns how many requests of u fetched content although the host does not permit the purpose.
func against(u audit.Use) int64 {
	if policy.Purpose(u.Purpose).ForbiddenBy(u.Usage) {
		return u.Fetched
	}
	return 0
}
