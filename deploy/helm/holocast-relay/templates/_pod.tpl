{{/* The pod template of a relay. */}}
{{- define "relay.pod" -}}
metadata:
  labels:
    {{- include "relay.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Restart the relay when its configuration changes.
    checksum/config: {{ include "relay.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "relay.fullname" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: relay
      image: {{ include "relay.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- if .Values.cluster.enabled }}
      args:
        - --config=/etc/holocast/relay.yaml
        - --log-format=json
        - --cluster-advertise=moqt://$(POD_NAME).{{ include "relay.headless" . }}:4443
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
      {{- else }}
      args: [--config, /etc/holocast/relay.yaml, --log-format, json]
      {{- end }}
      ports:
        - {name: moq, containerPort: 4443, protocol: UDP}
        {{- if .Values.cluster.enabled }}
        - {name: cluster, containerPort: 6222, protocol: TCP}
        {{- end }}
        - {name: http, containerPort: 4443, protocol: TCP}
        - {name: metrics, containerPort: 9192, protocol: TCP}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 1
        failureThreshold: 30
      readinessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 5
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      {{- if .Values.preStopSeconds }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ .Values.preStopSeconds }}}
      {{- end }}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/holocast/relay.yaml, subPath: relay.yaml, readOnly: true}
        {{- if include "relay.certificate" . }}
        - {name: tls, mountPath: /etc/holocast/tls, readOnly: true}
        {{- end }}
        {{- if .Values.auth.keysSecret }}
        - {name: keys, mountPath: /etc/holocast/keys, readOnly: true}
        {{- end }}
        {{- if .Values.cluster.enabled }}
        - {name: cluster, mountPath: /etc/holocast/cluster, readOnly: true}
        {{- end }}
        {{- range $i, $s := .Values.secrets }}
        - {name: secret-{{ $i }}, mountPath: {{ $s.path | quote }}, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "relay.fullname" . }}}
    {{- with include "relay.certificate" . }}
    - name: tls
      secret: {secretName: {{ . | quote }}, defaultMode: 0440}
    {{- end }}
    {{- with .Values.auth.keysSecret }}
    - name: keys
      secret: {secretName: {{ . | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.cluster.enabled }}
    - name: cluster
      secret: {secretName: {{ .Values.cluster.secretName | quote }}, defaultMode: 0440}
    {{- end }}
    {{- range $i, $s := .Values.secrets }}
    - name: secret-{{ $i }}
      secret: {secretName: {{ $s.name | quote }}, defaultMode: 0440}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints: {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
  {{- else if .Values.cluster.enabled }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "relay.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
{{- end }}
