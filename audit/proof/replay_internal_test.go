package proof

import (
	"testing"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

func TestStageOfEachReason(t *testing.T) {
	want := map[policy.Reason]stage{
		policy.ReasonNone: decided, policy.ReasonRobots: decided, policy.ReasonRobotsUnreachable: decided, policy.ReasonEgress: permitted,
		policy.ReasonExemption: decided, policy.ReasonUsage: decided, policy.ReasonHost: decided, policy.ReasonIntercept: decided,
		policy.ReasonIdentity: decided, policy.ReasonStopped: decided, policy.ReasonAuth: permitted, policy.ReasonPace: decided,
		policy.ReasonBackoff: permitted, policy.ReasonOverload: permitted, policy.ReasonPacingUnavailable: permitted,
		policy.ReasonAuditUnavailable: unrelated, policy.ReasonBadRequest: permitted, policy.ReasonMisdirected: permitted,
		policy.ReasonLoop: permitted, policy.ReasonUpstream: permitted, policy.ReasonInternal: permitted, policy.ReasonTooComplex: decided,
		policy.ReasonConnectionAuth: permitted, policy.ReasonClientLeft: permitted, policy.ReasonReport: decided, policy.ReasonOff: decided,
	}
	for _, reason := range append([]policy.Reason{policy.ReasonNone}, policy.Reasons...) {
		stage, listed := want[reason]
		if !listed {
			t.Errorf("%q is not listed here", reason)
			continue
		}
		r := audit.Record{Decision: policy.Deny, Reason: reason, RobotsState: "found", Intervention: "stop *: r (o)"}
		if got := stageOf(&r, policy.Decision{Reason: reason}); got != stage {
			t.Errorf("%q: %d, want %d", reason, got, stage)
		}
		if stage != permitted {
			continue
		}
		r.Intervention = ""
		if diff := compare(&r, policy.Decision{Action: policy.Refuse, Outcome: policy.Deny, Reason: policy.ReasonRobots}); diff == nil {
			t.Errorf("%q: the policy refused the request, and the record does not say so", reason)
		}
	}
	for _, r := range []audit.Record{
		{Decision: policy.Throttle, Reason: policy.ReasonPace},
		{Decision: policy.Deny, Reason: policy.ReasonStopped},
		{Decision: policy.Error, Reason: policy.ReasonRobotsUnreachable},
		{Decision: policy.WouldThrottle, Reason: policy.ReasonReport},
		{Decision: policy.Deny, Reason: policy.ReasonIdentity},
	} {
		if got := stageOf(&r, policy.Decision{Action: policy.Forward, Outcome: policy.Allow}); got != permitted {
			t.Errorf("%s %q: %d", r.Decision, r.Reason, got)
		}
	}
}
