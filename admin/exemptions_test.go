package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// oneExemption are exemptions of which one, with the ID 7, was added.
type oneExemption struct{}

var exempted = policy.Exemption{Host: "a.example", Effect: policy.EffectAllow, Reason: "r", Owner: "o", Until: time.Unix(1, 0)}

func (oneExemption) All() []Exemption {
	added := NewExemption(exempted, SourceStore, time.Now())
	added.ID, added.Added = 7, time.Unix(0, 0)
	return []Exemption{NewExemption(exempted, SourceFile, time.Now()), added}
}

func (oneExemption) Parse(entry map[string]string) (policy.Exemption, error) {
	if entry["host"] == "bad.example" {
		return policy.Exemption{}, errors.New("host: it is bad")
	}
	return policy.Exemption{Host: entry["host"]}, nil
}

func (x oneExemption) Add(context.Context, policy.Exemption) (Exemption, error) {
	return x.All()[1], nil
}

func (x oneExemption) Remove(_ context.Context, id int64) (Exemption, bool, error) {
	return x.All()[1], id == 7, nil
}

func (oneExemption) OtherInstances() int { return 1 }

// manyExemptions are as many as can be added.
type manyExemptions struct{ oneExemption }

func (x manyExemptions) All() []Exemption {
	all := make([]Exemption, maxExemptions)
	for i := range all {
		all[i] = x.oneExemption.All()[1]
	}
	return all
}

func TestExemptionsAreBounded(t *testing.T) {
	h := newHandler(t, Options{Exemptions: manyExemptions{}})
	r := httptest.NewRequest("POST", "http://localhost:3129/api/v1/exemptions", strings.NewReader(`{"host": "b.example"}`))
	r.Header.Set("Authorization", "Bearer "+testToken)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "1000 exemptions were added") {
		t.Errorf("%d %s, want 409", w.Code, w.Body)
	}
}
