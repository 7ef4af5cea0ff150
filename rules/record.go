package rules

import "bytes"

// record is a line that is neither a rule nor a user-agent line.
type record struct {
	line        uint32
	list        uint32 // the list of user-agent lines before it, from 1; 0 before all
	text        uint32
	textLength  uint16
	nameLength  uint16
	valueLength uint16
	key         key
}

// record stores a record that is not a rule. It does not end a group (2.2.4), except in some dialects.
func (p *parser) record(number int, f *field) {
	if len(f.text) == 0 || f.key == keyOther && !isKept(f) {
		return
	}
	ends := f.key == keyCrawlDelay || f.key == keyRequestRate || f.key == keyVisitTime
	if known := f.key == keyCrawlDelay || f.key == keySitemap; known && p.switches.groups == groupEndsAtField {
		p.groupEnded = true
	}
	inGroup := p.open && len(p.delays) > 0
	if inGroup && ends {
		p.listEnded = p.switches.agents.merged() || p.listEnded
		if f.key == keyCrawlDelay {
			p.crawlDelay(f.value())
		}
	}
	r := record{line: uint32(number), key: f.key}
	if inGroup {
		r.list = uint32(len(p.delays))
	}
	r.nameLength, r.valueLength = uint16(f.nameLength), uint16(f.valueLength)
	text := p.keep(f.text)
	r.text, r.textLength = text.start, uint16(text.length)
	p.records = append(p.records, r)
}

// isKept reports whether a record of an unknown kind is stored: it has a name and a colon.
func isKept(f *field) bool {
	return f.nameLength > 0 && bytes.IndexByte(f.text[f.nameLength:], ':') >= 0
}
