{{- define "relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "relay.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "relay.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "relay.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "relay.selector" -}}
app.kubernetes.io/name: {{ include "relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "relay.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: holocast
{{ include "relay.selector" . }}
{{- end }}

{{- define "relay.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The secret with the certificate; "" where the relay makes its own. */}}
{{- define "relay.certificate" -}}
{{- if .Values.tls.secretName -}}
{{ .Values.tls.secretName }}
{{- else if .Values.tls.certManager.enabled -}}
{{ include "relay.fullname" . }}-tls
{{- end }}
{{- end }}

{{/* The service with a name for each relay of the cluster, and its DNS name. */}}
{{- define "relay.headlessName" -}}
{{ include "relay.fullname" . | trunc 56 | trimSuffix "-" }}-relays
{{- end }}

{{- define "relay.headless" -}}
{{ include "relay.headlessName" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The setting cluster of relay.yaml. All relays join the first ones, at most three. */}}
{{- define "relay.cluster" -}}
name: {{ include "relay.fullname" . }}
secret: /etc/holocast/cluster/{{ .Values.cluster.key }}
{{- with .Values.cluster.region }}
region: {{ . | quote }}
{{- end }}
{{- if not (dig "cluster" "nats" "" .Values.config) }}
{{- $relays := .Values.autoscaling.enabled | ternary .Values.autoscaling.minReplicas .Values.replicas }}
join:
  {{- range until (min 3 $relays | int) }}
  - {{ printf "%s-%d.%s:6222" (include "relay.fullname" $) . (include "relay.headless" $) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* relay.yaml: config, with what the chart sets. */}}
{{- define "relay.config" -}}
{{- $own := dict "listen" ":4443" "http" ":4443" "admin" ":9192" -}}
{{- if .Values.auth.keysSecret }}
{{- $keys := list }}{{ range .Values.auth.keys }}{{ $keys = append $keys (printf "/etc/holocast/keys/%s" .) }}{{ end }}
{{- $_ := set $own "auth" (dict "keys" $keys) }}
{{- else if .Values.auth.insecure }}
{{- $_ := set $own "insecure" true }}
{{- else if not .Values.config.auth }}
{{- fail "auth.keysSecret: which secret has the keys that sign tokens? relay key relay.key makes one; auth.insecure lets everybody publish and watch" }}
{{- end }}
{{- if .Values.cluster.enabled }}
{{- if not .Values.cluster.secretName }}
{{- fail "cluster.secretName: which secret do the relays share? relay key cluster.key --algorithm HS256 makes it" }}
{{- end }}
{{- $_ := set $own "cluster" (include "relay.cluster" . | fromYaml) }}
{{- end }}
{{- if .Values.web }}{{ $_ := set $own "web" "/usr/share/holocast/web" }}{{ end -}}
{{- if include "relay.certificate" . }}
{{- $_ := set $own "tls" (dict "certificate" "/etc/holocast/tls/tls.crt" "key" "/etc/holocast/tls/tls.key") }}
{{- else }}
{{- $_ := set $own "tls" (dict "hosts" (list "localhost" (include "relay.fullname" .) (printf "%s.%s.svc" (include "relay.fullname" .) .Release.Namespace))) }}
{{- end -}}
{{- $all := mergeOverwrite $own (deepCopy .Values.config) }}
{{- if .Values.ingress.enabled }}
{{- $_ := set $all "origins" (append (.Values.config.origins | default list) (printf "https://%s" .Values.ingress.host) | uniq) }}
{{- end }}
{{- toYaml $all }}
{{- end }}
