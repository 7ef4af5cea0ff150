// Package kubernetes tests the manifests of deploy/kubernetes with the types of Kubernetes. It is a module of its own, so
// that those types are not among the modules of the program.
package kubernetes

import (
	"maps"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests are what kubectl apply -k deploy/kubernetes sends.
type manifests struct {
	deployments []*apps.Deployment
	services    []*core.Service
	configs     []*core.ConfigMap
	namespaces  []*core.Namespace
	policies    map[string]*networking.NetworkPolicy // by namespace and name
	budgets     []*policy.PodDisruptionBudget
}

// build builds deploy/kubernetes. A field that the types do not have fails the test.
func build(t *testing.T) *manifests {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../deploy/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	m := &manifests{policies: make(map[string]*networking.NetworkPolicy)}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		switch r.GetApiVersion() + " " + r.GetKind() {
		case "apps/v1 Deployment":
			m.deployments = append(m.deployments, decode[apps.Deployment](t, text))
		case "v1 Service":
			m.services = append(m.services, decode[core.Service](t, text))
		case "v1 ConfigMap":
			m.configs = append(m.configs, decode[core.ConfigMap](t, text))
		case "v1 Namespace":
			m.namespaces = append(m.namespaces, decode[core.Namespace](t, text))
		case "networking.k8s.io/v1 NetworkPolicy":
			m.policies[r.GetNamespace()+"/"+r.GetName()] = decode[networking.NetworkPolicy](t, text)
		case "policy/v1 PodDisruptionBudget":
			m.budgets = append(m.budgets, decode[policy.PodDisruptionBudget](t, text))
		default:
			t.Errorf("%s %s is not tested", r.GetApiVersion(), r.GetKind())
		}
	}
	return m
}

func decode[T any](t *testing.T, text []byte) *T {
	t.Helper()
	v := new(T)
	if err := yaml.UnmarshalStrict(text, v); err != nil {
		t.Errorf("%v:\n%s", err, text)
	}
	return v
}

// selects reports whether a selector selects the pods of a Deployment.
func selects(t *testing.T, selector *meta.LabelSelector, d *apps.Deployment) bool {
	t.Helper()
	for label, value := range selector.MatchLabels {
		if d.Spec.Template.Labels[label] != value {
			return false
		}
	}
	return len(selector.MatchExpressions) == 0
}

func (m *manifests) deployment(t *testing.T, name string) *apps.Deployment {
	t.Helper()
	i := slices.IndexFunc(m.deployments, func(d *apps.Deployment) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("there is no Deployment %s", name)
	}
	return m.deployments[i]
}

func TestSelectors(t *testing.T) {
	m := build(t)
	for _, d := range m.deployments {
		if !selects(t, d.Spec.Selector, d) {
			t.Errorf("the selector of %s does not select its pods", d.Name)
		}
	}
	for _, s := range m.services {
		d := m.deployment(t, s.Name)
		if !selects(t, &meta.LabelSelector{MatchLabels: s.Spec.Selector}, d) || s.Namespace != d.Namespace {
			t.Errorf("the Service %s does not select the pods of its Deployment", s.Name)
		}
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(c core.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }) {
				t.Errorf("the Service %s names the port %s, which the container does not have", s.Name, &p.TargetPort)
			}
		}
	}
	if len(m.budgets) != 1 || !selects(t, m.budgets[0].Spec.Selector, m.deployment(t, "robotsproxy")) {
		t.Error("no PodDisruptionBudget selects the proxies")
	}
	var namespaces []string
	for _, n := range m.namespaces {
		namespaces = append(namespaces, n.Name)
	}
	if slices.Sort(namespaces); !slices.Equal(namespaces, []string{"crawlers", "robotsproxy"}) {
		t.Errorf("the namespaces are %v", namespaces)
	}
	if len(m.configs) != 1 || m.configs[0].Name != "robotsproxy" || m.configs[0].Data["config.yaml"] == "" {
		t.Error("there is no ConfigMap robotsproxy with config.yaml")
	}
}

// The containers are those that the Pod Security Standard "restricted" admits.
func TestRestricted(t *testing.T) {
	for _, d := range build(t).deployments {
		pod := d.Spec.Template.Spec
		if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s may run as root, or without seccomp", d.Name)
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
				s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
				t.Errorf("%s: the container %s has privileges: %+v", d.Name, c.Name, s)
			}
		}
	}
}

// The policies of the namespace crawlers apply to all its pods, and permit the proxy and DNS alone.
func TestCrawlersHaveNoOtherWayOut(t *testing.T) {
	m := build(t)
	for _, name := range []string{"crawlers/only-the-proxy", "crawlers/names"} {
		p := m.policies[name]
		if p == nil {
			t.Fatalf("there is no policy %s", name)
		}
		if len(p.Spec.PodSelector.MatchLabels)+len(p.Spec.PodSelector.MatchExpressions) > 0 || !slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeEgress) {
			t.Errorf("%s does not restrict all pods", name)
		}
		for _, rule := range p.Spec.Egress {
			for _, peer := range rule.To {
				if peer.IPBlock != nil || peer.NamespaceSelector == nil || peer.PodSelector == nil || len(peer.PodSelector.MatchLabels) == 0 {
					t.Errorf("%s permits more than some pods: %+v", name, peer)
				}
			}
			if len(rule.To) == 0 || len(rule.Ports) == 0 {
				t.Errorf("%s permits all addresses or all ports", name)
			}
		}
	}
	to := m.policies["crawlers/only-the-proxy"].Spec.Egress[0].To[0]
	proxies := m.deployment(t, "robotsproxy")
	if !selects(t, to.PodSelector, proxies) || !maps.Equal(to.NamespaceSelector.MatchLabels, map[string]string{"kubernetes.io/metadata.name": proxies.Namespace}) {
		t.Errorf("crawlers do not reach the proxies: %+v", to)
	}
	for name, p := range m.policies {
		if p.Namespace == "crawlers" && name != "crawlers/only-the-proxy" && name != "crawlers/names" {
			t.Errorf("%s is another policy of the crawlers", name)
		}
	}
}
