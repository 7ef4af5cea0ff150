package bench

import "testing"

// BenchmarkRecords measures robotsproxy with and without its records in turns. One operation is a round of each.
func BenchmarkRecords(b *testing.B) {
	for _, way := range []struct{ name, audit string }{
		{"sqlite", "{jsonl: none}"},
		{"sqlite+jsonl", "{}"},
		{"strict", "{durability: strict}"},
		{"jsonl", "{store: none}"},
	} {
		for _, c := range cases[:2] {
			b.Run(way.name+"/"+c.name, func(b *testing.B) {
				o := newOrigins(b)
				without := newSide(b, startRobotsproxy(b, o, "audit: {store: none, jsonl: none}"), o, c.crawl)
				with := newSide(b, startRobotsproxy(b, o, "audit: "+way.audit), o, c.crawl)
				v := measure(b, without, with, c.round)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(v.goproxy.cpuMicros(), "without-cpu-us/op")
				b.ReportMetric(v.robotsproxy.cpuMicros(), "with-cpu-us/op")
				b.ReportMetric(v.robotsproxy.rate(), "with-requests/s")
				b.ReportMetric(v.wallRatio(), "rate-ratio")
			})
		}
	}
}
