package store

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

func TestPoliciesOfRecords(t *testing.T) {
	r := openRecords(t, RecordsOptions{})
	ctx := context.Background()
	p, err := policy.New(policy.Options{Mode: policy.Report, MaxCrawlDelay: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	entries := crawl(40, 1, 10*24*time.Hour)
	for i := range entries[:10] {
		entries[i].SetPolicy(p)
	}
	writeAll(t, r, entries)
	text, err := r.Policy(ctx, p.SHA256())
	if err != nil || !bytes.Equal(text, p.Text()) {
		t.Fatalf("Policy = %s, %v", text, err)
	}
	rec, err := r.Record(ctx, entries[9].ID)
	if err != nil || rec.PolicySHA256 != p.SHA256() || rec.RulesVersion == 0 {
		t.Errorf("%+v, %v", rec, err)
	}
	last := entries[9].Time
	if _, err := r.Prune(ctx, PruneOptions{Before: last, Why: "age"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Policy(ctx, p.SHA256()); err != nil {
		t.Errorf("the policy of a kept record: %v", err)
	}
	if _, err := r.Prune(ctx, PruneOptions{Before: last.Add(72 * time.Hour), Why: "age"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Policy(ctx, p.SHA256()); !errors.Is(err, audit.ErrNoPolicy) {
		t.Errorf("the policy of removed records: %v", err)
	}
	writeAll(t, r, entries[:1]) // the store must not take it for kept
	if _, err := r.Policy(ctx, p.SHA256()); err != nil {
		t.Errorf("the policy of a record after the removal: %v", err)
	}
}
