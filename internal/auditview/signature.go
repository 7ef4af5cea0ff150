package auditview

import (
	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/sign"
)

// SignatureBase returns what the key of r has signed (RFC 9421 section 2.5), or "" if the request was not signed.
func SignatureBase(r *audit.Record) string {
	o, err := origin.New(r.Scheme, r.Host, r.Port)
	if r.KeyID == "" || err != nil {
		return ""
	}
	return sign.Signed{Agent: r.SignatureAgent, KeyID: r.KeyID, Created: r.SignedAt, Nonce: r.SignatureNonce}.Base(o)
}
