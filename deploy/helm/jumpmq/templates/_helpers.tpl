{{- define "jumpmq.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "jumpmq.labels" -}}
app.kubernetes.io/name: jumpmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "jumpmq.selector" -}}
app.kubernetes.io/name: jumpmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: broker
{{- end }}

{{- define "jumpmq.etcdSelector" -}}
app.kubernetes.io/name: jumpmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: etcd
{{- end }}

{{- /* A cluster, not a node by itself. */}}
{{- define "jumpmq.cluster" -}}
{{- if gt (int .Values.nodes) 1 }}true{{ end }}
{{- end }}

{{- define "jumpmq.ownEtcd" -}}
{{- if and (include "jumpmq.cluster" .) .Values.etcd.enabled }}true{{ end }}
{{- end }}

{{- define "jumpmq.authSecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "jumpmq.name" .)) }}
{{- end }}

{{- define "jumpmq.tlsSecret" -}}
{{- if .Values.tls.existingSecret }}{{ .Values.tls.existingSecret }}{{ else if .Values.tls.certManager.enabled }}{{ include "jumpmq.name" . }}-tls{{ end }}
{{- end }}

{{- define "jumpmq.etcdSecret" -}}
{{- if include "jumpmq.ownEtcd" . }}{{ include "jumpmq.name" . }}-etcd-client{{ else if include "jumpmq.cluster" . }}{{ .Values.etcd.existingSecret }}{{ end }}
{{- end }}

{{- define "jumpmq.definitions" -}}
{{- with .Values.definitions }}{{ if or .inline .configMap .secret }}true{{ end }}{{ end }}
{{- end }}

{{- define "jumpmq.etcdUrls" -}}
{{- $name := include "jumpmq.name" . }}
{{- if include "jumpmq.ownEtcd" . -}}
{{- range $i := until 3 }}{{ if $i }},{{ end }}https://{{ $name }}-etcd-{{ $i }}.{{ $name }}-etcd.{{ $.Release.Namespace }}.svc:2379{{ end }}
{{- else -}}
{{- if not .Values.etcd.urls }}{{ fail "a cluster needs an etcd: set etcd.enabled or etcd.urls" }}{{ end }}
{{- join "," .Values.etcd.urls }}
{{- end }}
{{- end }}
