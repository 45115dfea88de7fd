{{- /* Names of values that do not exist. names.json has those that do, from values.schema.json, which
Helm judges first: it would refuse such a name, too, and could not say which one is nearest. */ -}}

{{- /* One line for each, below .where. .node of names.json: a map is a level of the chart's own or of
Kubernetes, a text one that has a name, a list what each item is; anything else takes all there is. */ -}}
{{- define "hapax.unknown" -}}
{{- $node := .node -}}
{{- if kindIs "string" $node }}{{ $node = index .names.types $node }}{{ end -}}
{{- if and (kindIs "slice" $node) (kindIs "slice" .value) -}}
{{- range $number, $each := .value -}}
{{- include "hapax.unknown" (dict "names" $.names "node" (first $node) "value" $each "where" (printf "%s[%d]" $.where $number)) -}}
{{- end -}}
{{- else if and (kindIs "map" $node) (kindIs "map" .value) -}}
{{- range $name, $each := .value -}}
{{- $where := printf "%s.%s" $.where $name | trimPrefix "." -}}
{{- if hasKey $node $name -}}
{{- include "hapax.unknown" (dict "names" $.names "node" (index $node $name) "value" $each "where" $where) -}}
{{- else }}
{{ $where }}: {{ index $.names.renamed $where | default (include "hapax.nearest" (dict "name" $name "of" (keys $node))) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The one of the list .of with which .name has most in common: letters, pairs of letters, the beginning,
the end. */ -}}
{{- define "hapax.nearest" -}}
{{- $given := printf "<%s>" (.name | lower) -}}
{{- $parts := list -}}
{{- range $at := until (sub (len $given) 1 | int) -}}
{{- $parts = append $parts (substr $at (int (add $at 2)) $given) -}}
{{- $parts = append $parts (substr 0 (int (add $at 2)) $given) -}}
{{- $parts = append $parts (substr $at (len $given) $given) -}}
{{- if $at }}{{ $parts = append $parts (substr $at (int (add1 $at)) $given) }}{{ end -}}
{{- end -}}
{{- $found := "" -}}{{- $best := 0 -}}
{{- range $name := sortAlpha .of -}}
{{- $other := printf "<%s>" ($name | lower) -}}
{{- $common := 0 -}}
{{- range $parts }}{{ if contains . $other }}{{ $common = add1 $common }}{{ end }}{{ end -}}
{{- $score := div (mul 500 $common) (add (len $given) (len $other)) -}}
{{- if gt $score $best }}{{ $best = $score }}{{ $found = $name }}{{ end -}}
{{- end -}}
{{- if gt $best 240 -}}
did you mean {{ $found }}?
{{- else if gt (len .of) 40 -}}
no name is near
{{- else -}}
there are {{ sortAlpha .of | join ", " }}
{{- end -}}
{{- end }}

{{- define "hapax.known" -}}
{{- $names := .Files.Get "names.json" | fromJson -}}
{{- $unknown := include "hapax.unknown" (dict "names" $names "node" $names.values "value" .Values "where" "") -}}
{{- $variables := concat (keys $names.values.settings) (keys $names.secrets) -}}
{{- range $number, $each := .Values.extraEnv -}}
{{- if and (hasPrefix "HAPAX_" $each.name) (not (has $each.name $variables)) -}}
{{- $where := printf "extraEnv[%d].name %s" $number $each.name -}}
{{- $unknown = printf "%s\n%s: %s" $unknown $where (include "hapax.nearest" (dict "name" $each.name "of" $variables)) -}}
{{- end -}}
{{- end -}}
{{- with $unknown }}{{ fail (printf "values that do not exist:%s" .) }}{{ end -}}
{{- end }}
