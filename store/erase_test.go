package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/seal"
	"github.com/robotsproxy/robotsproxy/policy"
)

// TestErase erases a client. Its name, tag and path are not in any byte of the file and its log, the other client's
// records and counts are as they were, and the seals tell the erasure from a removal.
func TestErase(t *testing.T) {
	s := newSealed(t, 2000)
	ctx := context.Background()
	second := openRecords(t, RecordsOptions{Path: s.path}) // as the serving process
	before, err := second.Sums(ctx, audit.Filter{Since: firstDay.AddDate(-1, 0, 0), Client: "news"}, audit.ByHost)
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.records.Erase(ctx, EraseOptions{Client: "lab-client", By: "ops", Reason: "asked for it"})
	if err != nil || e.Records != 500 || e.Number != 1 || !e.Overwritten {
		t.Fatalf("%+v, %v", e, err)
	}
	for _, name := range []string{s.path, s.path + "-wal"} {
		data, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, secret := range []string{"lab-secret-tag", "lab-client", "/page/400"} {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s still has %q", name, secret)
			}
		}
	}
	after, err := second.Sums(ctx, audit.Filter{Since: firstDay.AddDate(-1, 0, 0), Client: "news"}, audit.ByHost)
	if err != nil || len(after) != len(before) {
		t.Fatalf("%v, %v", after, err)
	}
	for i := range after {
		if after[i].Requests != before[i].Requests || after[i].Bytes != before[i].Bytes {
			t.Errorf("%+v became %+v", before[i], after[i])
		}
	}
	all, err := second.Sums(ctx, audit.Filter{Since: firstDay.AddDate(-1, 0, 0)}, audit.ByClient)
	if err != nil || len(all) != 1 || all[0].Values[0] != "news" || all[0].Requests != 1500 {
		t.Errorf("by client: %+v, %v", all, err)
	}
	again := openRecords(t, RecordsOptions{Path: s.path})
	r, err := seal.Verify(ctx, again, seal.VerifyOptions{Keys: []seal.Verifier{s.key.Public()}})
	if err != nil || !r.Sound() || r.Erased != 500 || r.Sealed != 1500 || r.ErasuresUnsealed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	late := audit.Record{ID: audit.IDAt(time.Now()), EndedAt: time.Now(), Client: "lab-client", Tag: "lab-secret-tag"}
	writeRecords(t, second, audit.Entry{Record: late})
	if rec, err := again.Record(ctx, late.ID); err != nil || rec.Client != "lab-client" {
		t.Errorf("a record after the erasure: %+v, %v", rec, err)
	}
	s.seal(t)
	if r := s.verify(t); !r.Sound() || r.ErasuresUnsealed != 0 || r.Sealed != 1501 {
		t.Errorf("after the next seal: %+v", r)
	}
}

func TestErasePolicies(t *testing.T) { onEach(t, checkErasePolicies) }

// A policy stays while a record rests on it, and Erase says if such a policy names the client.
func checkErasePolicies(t *testing.T, open opener) {
	r := open(t, RecordsOptions{})
	ctx := context.Background()
	var policies []*policy.Policy
	for _, mode := range []policy.Mode{policy.Enforce, policy.Report} {
		p, err := policy.New(policy.Options{Mode: mode, Clients: []policy.Client{{Name: "lab<7>"}, {Name: "news"}}})
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p)
	}
	entries := crawl(4, 1, time.Minute)
	for i := range entries {
		entries[i].Client = "lab<7>"
		entries[i].SetPolicy(policies[i/2])
	}
	entries[3].Client = "news"
	writeAll(t, r, entries)
	e, err := r.Erase(ctx, EraseOptions{Client: "lab<7>", Reason: "asked"})
	if err != nil || e.Records != 3 || e.Policies != 1 {
		t.Errorf("Erase = %+v, %v", e, err)
	}
	if _, err := r.Policy(ctx, policies[0].SHA256()); !errors.Is(err, audit.ErrNoPolicy) {
		t.Errorf("the policy of erased records: %v", err)
	}
	if _, err := r.Policy(ctx, policies[1].SHA256()); err != nil {
		t.Errorf("the policy of a record: %v", err)
	}
	e, err = r.Erase(ctx, EraseOptions{Client: "news", Reason: "asked"})
	if err != nil || e.Policies != 0 {
		t.Errorf("Erase = %+v, %v", e, err)
	}
	if n := scanOne(t, r, "SELECT (SELECT count(*) FROM policies) + (SELECT count(*) FROM verdicts)"); n != 0 {
		t.Errorf("%d policies and verdicts are left", n)
	}
}

// TestEraseByAddress erases the requests from one address within a time.
func TestEraseByAddress(t *testing.T) {
	s := newSealed(t, 300)
	ctx := context.Background()
	if _, err := s.records.Erase(ctx, EraseOptions{Reason: "all"}); err == nil {
		t.Error("everything was erased")
	}
	o := EraseOptions{Client: "news", ClientAddr: "192.0.2.1", Since: s.ids[100].Time(), Until: s.ids[200].Time(), Reason: "asked", Keep: true}
	ids, err := s.records.Erasable(ctx, o)
	if err != nil || len(ids) != 25 {
		t.Fatalf("%d records, %v", len(ids), err)
	}
	if e, err := s.records.Erase(ctx, o); err != nil || e.Records != 25 || e.Overwritten {
		t.Errorf("%+v, %v", e, err)
	}
	if r := s.verify(t); !r.Sound() || r.Erased != 25 || r.Sealed != 275 {
		t.Errorf("%+v", r)
	}
	if e, err := s.records.Erase(ctx, o); err != nil || e != (Erased{}) {
		t.Errorf("the second time: %+v, %v", e, err)
	}
}

// TestPruneIsNoRemoval: what Prune removes is pruned for the seals, and its hashes go with a later seal.
func TestPruneIsNoRemoval(t *testing.T) {
	s := newSealed(t, 10_000) // 2 hours and 46 minutes
	p, err := s.records.Prune(context.Background(), PruneOptions{Before: time.Now().Add(-time.Hour)})
	if err != nil || p.Records == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if r := s.verify(t); !r.Sound() || r.Pruned != p.Records || !r.PrunedUnsealed {
		t.Errorf("%+v of %+v", r, p)
	}
	s.crawl(t, 1)
	s.seal(t)
	var dropped int
	if err := s.records.read.QueryRow("SELECT count(*) FROM seal_tiles WHERE data IS NULL").Scan(&dropped); err != nil || dropped == 0 {
		t.Errorf("%d tiles are without hashes, %v", dropped, err)
	}
	if r := s.verify(t); !r.Sound() || r.Pruned != p.Records || r.PrunedUnsealed || r.Sealed != 10_001-p.Records {
		t.Errorf("after the next seal: %+v of %+v", r, p)
	}
}
