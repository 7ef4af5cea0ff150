package rules

// Access is the meaning of the status of a response to a request for robots.txt. The zero value refuses.
type Access uint8

const (
	AccessNone    Access = iota // no path
	AccessAll                   // every path
	AccessRules                 // the paths that the rules in the body allow
	AccessUnknown               // the dialect leaves it to its caller, which gets an error
)

// Access returns the meaning of the last response's status in the dialect. It is data for programs that fetch files;
// nothing in this package depends on it.
//
// By RFC 9309 section 2.3.1, 2xx has rules, 4xx allows everything and 5xx nothing; a redirect without a target counts
// as 4xx. Departure: 429 allows nothing, since a server that asks for fewer requests does not mean to allow
// everything. Google's crawler does the same. The older parsers refuse for 401 and 403.
func (d Dialect) Access(status int) Access {
	if status >= 200 && status < 300 {
		return AccessRules
	}
	switch d {
	case DialectRobotstxtRB, DialectRobotsCR:
		return olderAccess(status, AccessAll)
	case DialectMK1996, DialectGYM2008:
		if status == 404 {
			return AccessAll
		}
		return olderAccess(status, AccessUnknown)
	case DialectWWWRobotRules:
		return AccessAll // it has no statuses; its user agent passes it only successful responses
	default:
		if status >= 500 || status == 429 {
			return AccessNone
		}
		return AccessAll
	}
}

func olderAccess(status int, others Access) Access {
	if status == 401 || status == 403 {
		return AccessNone
	}
	return others
}
