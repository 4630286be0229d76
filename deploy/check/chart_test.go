package check

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigs "sigs.k8s.io/yaml"
)

const chartDir = "../helm/holocast-relay"

// rendered holds the objects of a release by kind, or by kind/component if they have that label.
type rendered map[string]runtime.Object

// pod returns the kind of the object that runs the relay, its selector and its pod template.
func (all rendered) pod() (kind string, selector map[string]string, pod core.PodTemplateSpec) {
	if o, ok := all["StatefulSet"].(*apps.StatefulSet); ok {
		return "StatefulSet", o.Spec.Selector.MatchLabels, o.Spec.Template
	}
	o := all["Deployment"].(*apps.Deployment)
	return "Deployment", o.Spec.Selector.MatchLabels, o.Spec.Template
}

// values reads a values file.
func values(t *testing.T, file string) map[string]any {
	t.Helper()
	v := map[string]any{}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := sigs.UnmarshalStrict(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// template renders the chart as "helm template live" does and decodes every object strictly, so
// fields unknown to Kubernetes are errors.
func template(t *testing.T, v map[string]any) (rendered, error) {
	t.Helper()
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.33.0", Major: "1", Minor: "33"}
	full, err := chartutil.ToRenderValues(chart, v,
		chartutil.ReleaseOptions{Name: "live", Namespace: "media", IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, full)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apps.AddToScheme, autoscaling.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme,
		certmanager.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	all := rendered{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for documents := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(files[name]))); ; {
			text := make([]byte, 1<<20)
			n, err := documents.Read(text)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if text = bytes.TrimSpace(text[:n]); len(text) == 0 {
				continue
			}
			o, kind, err := decoder.Decode(text, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			key := kind.Kind
			if component := o.(meta.Object).GetLabels()["app.kubernetes.io/component"]; component != "" {
				key += "/" + component
			}
			if all[key] != nil {
				t.Errorf("two objects are %s", key)
			}
			all[key] = o
		}
	}
	return all, nil
}

func TestChart(t *testing.T) {
	sets, err := filepath.Glob("../helm/values/*.yaml")
	if err != nil || len(sets) < 4 {
		t.Fatalf("%d sets of values (%v)", len(sets), err)
	}
	for set, kinds := range map[string]string{
		"trial.yaml":    "ConfigMap Deployment PodDisruptionBudget Service Service/http ServiceAccount",
		"internet.yaml": "Certificate ConfigMap Deployment Ingress NetworkPolicy PodDisruptionBudget Service Service/http ServiceAccount ServiceMonitor",
		"cluster.yaml":  "ConfigMap NetworkPolicy PodDisruptionBudget Service Service/cluster Service/http ServiceAccount StatefulSet",
		"scaled.yaml":   "ConfigMap HorizontalPodAutoscaler NetworkPolicy PodDisruptionBudget Service Service/cluster Service/http ServiceAccount ServiceMonitor StatefulSet",
	} {
		t.Run("values="+set, func(t *testing.T) {
			v := values(t, "../helm/values/"+set)
			for _, m := range lint.All(chartDir, v, "media", true).Messages {
				if m.Severity > support.InfoSev {
					t.Error(m)
				}
			}
			all, err := template(t, v)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(slices.Sorted(maps.Keys(all)), " "); got != kinds {
				t.Errorf("it has %s\nwant   %s", got, kinds)
			}
			fitTogether(t, all)
			config := all["ConfigMap"].(*core.ConfigMap).Data["relay.yaml"]
			if both := "origins:\n- https://partner.example.org\n- https://watch.example.com\n"; set == "internet.yaml" &&
				!strings.Contains(config, both) {
				t.Errorf("origins lack the web viewer's page or the configured one:\n%s", config)
			}
			relayChecks(t, config)
		})
	}
}

// fitTogether checks that references between objects resolve.
func fitTogether(t *testing.T, all rendered) {
	t.Helper()
	kind, selector, pod := all.pod()
	relay := pod.Spec.Containers[0]
	port := func(name intstr.IntOrString, protocol core.Protocol) {
		t.Helper()
		if !slices.ContainsFunc(
			relay.Ports,
			func(p core.ContainerPort) bool { return p.Name == name.StrVal && p.Protocol == protocol },
		) {
			t.Errorf("the relay has no %s port %s", protocol, name.String())
		}
	}
	selects := func(what string, selector map[string]string) {
		t.Helper()
		for key, value := range selector {
			if pod.Labels[key] != value {
				t.Errorf("%s selects %s=%s, the pod has %q", what, key, value, pod.Labels[key])
			}
		}
		if len(selector) == 0 {
			t.Errorf("%s selects every pod", what)
		}
	}
	selects(kind, selector)
	selects("PodDisruptionBudget", all["PodDisruptionBudget"].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels)
	for name, protocol := range map[string]core.Protocol{"Service": core.ProtocolUDP, "Service/http": core.ProtocolTCP} {
		s := all[name].(*core.Service)
		selects(name, s.Spec.Selector)
		for _, p := range s.Spec.Ports {
			if p.Protocol != protocol {
				t.Errorf("%s is %s", name, p.Protocol)
			}
			port(p.TargetPort, p.Protocol)
		}
	}
	for _, p := range []*core.Probe{relay.StartupProbe, relay.ReadinessProbe, relay.LivenessProbe} {
		port(p.HTTPGet.Port, core.ProtocolTCP)
	}
	if n, ok := all["NetworkPolicy"].(*networking.NetworkPolicy); ok {
		selects("NetworkPolicy", n.Spec.PodSelector.MatchLabels)
		port(*n.Spec.Ingress[0].Ports[0].Port, core.ProtocolUDP)
		port(*n.Spec.Ingress[1].Ports[0].Port, core.ProtocolTCP)
		port(*n.Spec.Ingress[2].Ports[0].Port, core.ProtocolTCP)
	}
	if h, ok := all["HorizontalPodAutoscaler"].(*autoscaling.HorizontalPodAutoscaler); ok {
		target, got := h.Spec.ScaleTargetRef, all["StatefulSet"].(*apps.StatefulSet)
		if target.Kind != kind || target.Name != got.Name || got.Spec.Replicas != nil {
			t.Errorf("autoscaler targets %s %s; %s %s wants %v replicas", target.Kind, target.Name, kind, got.Name,
				got.Spec.Replicas)
		}
	}
	if o, ok := all["StatefulSet"].(*apps.StatefulSet); ok {
		clustered(t, all, o)
	}
	if m, ok := all["ServiceMonitor"].(*monitoring.ServiceMonitor); ok {
		s := all["Service/http"].(*core.Service)
		for key, value := range m.Spec.Selector.MatchLabels {
			if s.Labels[key] != value {
				t.Errorf("ServiceMonitor selects %s=%s, the service has %q", key, value, s.Labels[key])
			}
		}
		if !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port }) {
			t.Errorf("ServiceMonitor reads port %s, which the service lacks", m.Spec.Endpoints[0].Port)
		}
	}
	if c, ok := all["Certificate"].(*certmanager.Certificate); ok {
		if !slices.ContainsFunc(
			pod.Spec.Volumes,
			func(v core.Volume) bool { return v.Secret != nil && v.Secret.SecretName == c.Spec.SecretName },
		) {
			t.Errorf("the relay does not mount the certificate's secret %s", c.Spec.SecretName)
		}
	}
	for _, m := range relay.VolumeMounts {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("volume %s is missing", m.Name)
		}
	}
	if s := pod.Spec.SecurityContext; !*s.RunAsNonRoot || !*relay.SecurityContext.ReadOnlyRootFilesystem ||
		*relay.SecurityContext.AllowPrivilegeEscalation {
		t.Error("the relay has excess privileges")
	}
}

// clustered checks what the relays of a cluster need to reach each other.
func clustered(t *testing.T, all rendered, o *apps.StatefulSet) {
	t.Helper()
	headless := all["Service/cluster"].(*core.Service)
	if o.Spec.ServiceName != headless.Name || headless.Spec.ClusterIP != core.ClusterIPNone ||
		!headless.Spec.PublishNotReadyAddresses || !maps.Equal(headless.Spec.Selector, o.Spec.Selector.MatchLabels) {
		t.Errorf("StatefulSet %s with service %q: %+v", o.Name, o.Spec.ServiceName, headless.Spec)
	}
	relay := o.Spec.Template.Spec.Containers[0]
	for _, p := range headless.Spec.Ports {
		if !slices.ContainsFunc(relay.Ports, func(c core.ContainerPort) bool {
			return c.Name == p.TargetPort.StrVal && c.Protocol == p.Protocol && c.ContainerPort == p.Port
		}) {
			t.Errorf("the relay has no port %+v", p)
		}
	}
	domain := "." + headless.Name + ".media.svc:"
	if want := "--cluster-advertise=moqt://$(POD_NAME)" + domain + "4443"; !slices.Contains(relay.Args, want) {
		t.Errorf("arguments %q, want %s", relay.Args, want)
	}
	if len(relay.Env) != 1 || relay.Env[0].Name != "POD_NAME" || relay.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.name" {
		t.Errorf("environment %+v", relay.Env)
	}
	config := all["ConfigMap"].(*core.ConfigMap).Data["relay.yaml"]
	for i := range 3 {
		if want := fmt.Sprint("- ", o.Name, "-", i, domain, "6222\n"); !strings.Contains(config, want) {
			t.Errorf("no %q in the configuration:\n%s", want, config)
		}
	}
	spread := o.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 2 || !maps.Equal(spread[1].LabelSelector.MatchLabels, o.Spec.Selector.MatchLabels) {
		t.Errorf("topology spread %+v", spread)
	}
	n := all["NetworkPolicy"].(*networking.NetworkPolicy).Spec
	in, out := n.Ingress[len(n.Ingress)-1], n.Egress[1]
	for _, peers := range [][]networking.NetworkPolicyPeer{in.From, out.To} {
		if len(peers) != 1 || !maps.Equal(peers[0].PodSelector.MatchLabels, o.Spec.Selector.MatchLabels) {
			t.Errorf("the network policy lets relays reach %+v", peers)
		}
	}
	if len(in.Ports) != 2 || len(out.Ports) != 2 || out.Ports[0].Port.IntVal != 4443 || out.Ports[1].Port.IntVal != 6222 {
		t.Errorf("the network policy opens %+v and %+v", in.Ports, out.Ports)
	}
}

// relayChecks runs "relay check" on the chart's configuration.
func relayChecks(t *testing.T, config string) {
	t.Helper()
	web := t.TempDir()
	if err := os.WriteFile(filepath.Join(web, "index.html"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "relay.yaml")
	config = strings.Replace(config, "/usr/share/holocast/web", web, 1)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	checks(t, "relay", file)
}

// TestChartRefuses checks that invalid values fail with a message that names the setting.
func TestChartRefuses(t *testing.T) {
	for name, c := range map[string]struct{ values, want string }{
		"unknown value":             {`replica: 2`, "replica"},
		"port":                      {`service: {port: 70000}`, "70,000"},
		"digest":                    {`image: {repository: r, digest: latest}`, "digest"},
		"neither keys nor insecure": {`{}`, "auth.keysSecret"},
		"ingress without a host":    {`{auth: {insecure: true}, ingress: {enabled: true}}`, "ingress.host"},
		"certificate of no name":    {`{auth: {insecure: true}, tls: {certManager: {enabled: true, issuerRef: {name: ca}}}}`, "tls.certManager.dnsNames"},
		"relays without a cluster":  {`{auth: {insecure: true}, replicas: 2}`, "cluster.enabled"},
		"scaled without a cluster":  {`{auth: {insecure: true}, autoscaling: {enabled: true}}`, "cluster.enabled"},
		"cluster without a secret":  {`{auth: {insecure: true}, cluster: {enabled: true}}`, "cluster.secretName"},
		"certificate of no issuer":  {`{auth: {insecure: true}, tls: {certManager: {enabled: true, dnsNames: [a]}}}`, "tls.certManager.issuerRef.name"},
	} {
		t.Run(name, func(t *testing.T) {
			v := map[string]any{}
			if err := sigs.Unmarshal([]byte(c.values), &v); err != nil {
				t.Fatal(err)
			}
			if _, err := template(t, v); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}
