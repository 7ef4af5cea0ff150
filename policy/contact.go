package policy

import "regexp"

// contact matches a URL of http or https, or a mail address.
var contact = regexp.MustCompile(`(?i)\bhttps?://[a-z0-9\[]|[a-z0-9._%+-]+@[a-z0-9-]+\.[a-z0-9-]`)

// HasContact reports whether a User-Agent has a contact for owners of sites: a URL, as in
// "NewsBot/1.0 (+https://example.org/bot)", or a mail address. Only the first 4 KiB count, which bounds the time.
func HasContact(userAgent string) bool {
	return contact.MatchString(userAgent[:min(len(userAgent), 4<<10)])
}

// lacksContact reports whether r is refused because its User-Agent has no contact.
func (p *Policy) lacksContact(r Request) bool {
	return p.options.RequireContact && !HasContact(r.UserAgent)
}
