{{- define "hapax.name" -}}
{{- $name := .Values.fullnameOverride | default .Release.Name -}}
{{- if and .Values.nameOverride (not .Values.fullnameOverride) (not (contains .Values.nameOverride $name)) -}}
{{- $name = printf "%s-%s" $name .Values.nameOverride -}}
{{- end -}}
{{- if gt (len $name) 50 -}}
{{- printf "%s-%s" ($name | trunc 41 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{- define "hapax.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "hapax" }}
app.kubernetes.io/instance: {{ include "hapax.name" . }}
{{- end }}

{{- /* Of pods: a chart that is newer, and no more, must not replace them. */ -}}
{{- define "hapax.podLabels" -}}
{{- $labels := include "hapax.selector" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/component" (ternary "pipeline" "monitoring" .Values.pipeline.enabled) -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "hapax" -}}
{{- toYaml (mergeOverwrite $labels .Values.commonLabels) -}}
{{- end }}

{{- define "hapax.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "hapax.podLabels" . }}
{{- end }}

{{- define "hapax.metadata" -}}
{{- include "hapax.found" (dict "root" .) -}}
{{- end }}

{{- /* The same for what an operator finds by labels of its own: .root and .labels. */ -}}
{{- define "hapax.found" -}}
name: {{ include "hapax.name" .root }}
labels:
  {{- mergeOverwrite (include "hapax.labels" .root | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- end }}

{{- define "hapax.image" -}}
{{- with .Values.image -}}
{{- with $.Values.global.imageRegistry | default .registry }}{{ . }}/{{ end -}}
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
