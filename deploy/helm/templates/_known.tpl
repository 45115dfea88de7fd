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

{{- /* What would be rendered and could not work. */ -}}
{{- define "hapax.possible" -}}
{{- $settings := .Values.settings -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "hapax.name" .)) -}}
{{- fail (printf "the name %s cannot be that of a Service: it begins with a letter and has letters, digits and dashes; choose another release name, or fullnameOverride" (include "hapax.name" .)) -}}
{{- end -}}
{{- $computed := append (keys (.Files.Get "settings.yaml" | fromYaml).defaults) "HAPAX_GROUP__MEMBERSHIP" -}}
{{- range .Values.extraEnv -}}
{{- if has .name $computed -}}
{{- fail (printf "extraEnv: %s decides about probes, memory or members: put it into settings" .name) -}}
{{- end -}}
{{- end -}}
{{- range list "HAPAX_INPUT__END" "HAPAX_STOP_AFTER__AT_END" "HAPAX_STOP_AFTER__RECORDS" -}}
{{- if not (has (index $settings . | toString | lower) (list "" "<nil>" "false")) -}}
{{- fail (printf "settings.%s: a bounded run ends, and these pods would begin again: use a Job (docs/backfill.md)" .) -}}
{{- end -}}
{{- end -}}
{{- if and $settings.HAPAX_SPARK__DATAFRAME (gt (int64 .Values.replicaCount) 1) -}}
{{- fail "replicaCount: a DataFrame pipeline is one query with one checkpoint, and one pod; set it to 1" -}}
{{- end -}}
{{- if and (eq ($settings.HAPAX_ENGINE | toString) "spark") (not (dig "limits" "memory" "" .Values.resources)) -}}
{{- fail "settings.HAPAX_ENGINE: Spark needs its image, and more memory and scratch: add -f values/spark.yaml" -}}
{{- end -}}
{{- end }}
