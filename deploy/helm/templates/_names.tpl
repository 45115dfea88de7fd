{{- /* The controller of a StatefulSet labels pods with this name, a hyphen and ten characters, and a
label holds 63. A name that is cut keeps a hash, so that two that begin alike do not meet. */ -}}
{{- define "hapax.name" -}}
{{- $name := .Values.fullnameOverride | default .Release.Name -}}
{{- if gt (len $name) 50 -}}
{{- printf "%s-%s" ($name | trunc 41 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{- define "hapax.selector" -}}
app.kubernetes.io/name: hapax
app.kubernetes.io/instance: {{ include "hapax.name" . }}
{{- end }}

{{- define "hapax.labels" -}}
{{- include "hapax.selector" . }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hapax.metadata" -}}
name: {{ include "hapax.name" . }}
labels:
  {{- include "hapax.labels" . | nindent 2 }}
{{- end }}

{{- define "hapax.image" -}}
{{- with .Values.image -}}
{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "hapax.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "hapax.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "hapax.secret" -}}
{{- .Values.secrets.name | default (include "hapax.name" .) -}}
{{- end }}

{{- /* A setting as text: Helm reads large numbers of files as floating point, and would write 1e+07. */ -}}
{{- define "hapax.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else -}}
{{- . | toString -}}
{{- end -}}
{{- end }}
