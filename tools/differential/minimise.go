package main

// difference is a verdict on which two judges disagree.
type difference struct {
	robots []byte
	agent  string
	target string
	laxer  bool // ours allows what the other disallows
}

func (d difference) size() int { return len(d.robots) + len(d.target) }

// minimise returns a difference of the same direction from which nothing can be removed: without any byte of the file or
// of the target, the judges agree.
func (d difference) minimise(ours, other judge) (difference, error) {
	var failed error
	differs := func(x difference) bool {
		a, err := ours(x.robots, x.agent, []string{x.target})
		if err == nil {
			var b []bool
			if b, err = other(x.robots, x.agent, []string{x.target}); err == nil {
				return a[0] != b[0] && a[0] == x.laxer
			}
		}
		failed = err
		return false
	}
	for before := -1; before != d.size() && failed == nil; {
		before = len(d.robots) + len(d.target)
		d.robots = shrink(d.robots, func(robots []byte) bool {
			return differs(difference{robots, d.agent, d.target, d.laxer})
		})
		d.target = "/" + string(shrink([]byte(d.target[1:]), func(target []byte) bool {
			return differs(difference{d.robots, d.agent, "/" + string(target), d.laxer})
		}))
	}
	return d, failed
}

// shrink removes pieces of text, from half of it down to a byte, as long as it holds.
func shrink(text []byte, holds func([]byte) bool) []byte {
	for size := max(len(text)/2, 1); size > 0; size /= 2 {
		for at := 0; at < len(text); {
			end := min(at+size, len(text))
			shorter := append(append(make([]byte, 0, len(text)), text[:at]...), text[end:]...)
			if holds(shorter) {
				text = shorter
			} else {
				at = end
			}
		}
	}
	return text
}
