{{- define "hapax.selector" -}}
app.kubernetes.io/name: hapax
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hapax.metadata" -}}
name: {{ .Release.Name }}
labels:
  {{- include "hapax.selector" . | nindent 2 }}
{{- end }}

{{- define "hapax.image" -}}
{{- with .Values.image -}}
{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}
