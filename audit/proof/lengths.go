package proof

import (
	"maps"
	"math"
	"slices"
	"time"
)

// lengths are the lengths of many gaps, from which quantiles are computed. Up to maxExact lengths are kept as they are.
// More are counted in bins whose bounds differ by a thousandth, so a quantile is off by up to half of that.
type lengths struct {
	exact []time.Duration
	bins  map[int32]int64
	n     int64
}

const (
	maxExact = 256
	binRatio = 1.001
)

func (l *lengths) add(d time.Duration) {
	l.n++
	if l.bins == nil && len(l.exact) < maxExact {
		l.exact = append(l.exact, d)
		return
	}
	if l.bins == nil {
		l.bins = map[int32]int64{}
		for _, e := range l.exact {
			l.bins[bin(e)]++
		}
		l.exact = nil
	}
	l.bins[bin(d)]++
}

// bin returns the number of the bin of d. Durations up to a microsecond, and negative ones, are in the first.
func bin(d time.Duration) int32 {
	if d <= time.Microsecond {
		return 0
	}
	return int32(math.Ceil(math.Log(float64(d)/float64(time.Microsecond)) / math.Log(binRatio)))
}

// quantile returns the length that a part q of the lengths does not exceed, or 0 if there are none.
func (l *lengths) quantile(q float64) time.Duration {
	rank := max(1, int64(math.Ceil(q*float64(l.n))))
	if l.bins == nil {
		slices.Sort(l.exact)
		if len(l.exact) == 0 {
			return 0
		}
		return l.exact[rank-1]
	}
	for _, b := range slices.Sorted(maps.Keys(l.bins)) {
		if rank -= l.bins[b]; rank <= 0 {
			middle := math.Pow(binRatio, float64(b)-0.5)
			return time.Duration(middle * float64(time.Microsecond))
		}
	}
	return 0
}
