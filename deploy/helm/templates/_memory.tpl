{{- /* What the settings say about memory, and what follows from it for the container.
settings.yaml has the defaults, from the code. */ -}}

{{- define "hapax.outputBytes" -}}
{{- $defaults := (.Files.Get "settings.yaml" | fromYaml).defaults -}}
{{- $name := "HAPAX_CALL__OUTPUT_BYTES_MAX" -}}
{{- $text := include "hapax.text" (index .Values.settings $name | default (index $defaults $name)) | lower -}}
{{- $units := dict "" 1 "b" 1 "kb" 1e3 "mb" 1e6 "gb" 1e9 "kib" 1024 "mib" 1048576 "gib" 1073741824 -}}
{{- mulf (regexFind "[0-9.]+" $text | float64) (index $units (regexFind "[a-z]*$" $text)) -}}
{{- end }}

{{- /* Without a limit of its own, a container gets the outputs of one record and 512 MiB for all else.
A limit that these outputs alone would reach is refused; a form that is not read here is not judged. */ -}}
{{- define "hapax.resources" -}}
{{- $outputs := include "hapax.outputBytes" . | float64 -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $given := dig "limits" "memory" "" $resources | toString -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if not $given -}}
{{- $given = printf "%dMi" (addf 512 (divf $outputs 1048576) | ceil | int64) -}}
{{- $resources = mergeOverwrite $resources (dict "limits" (dict "memory" $given)) -}}
{{- else if and (regexMatch "^[0-9.]+([kMGT]|[KMGT]i)?$" $given) (le (mulf (regexFind "[0-9.]+" $given | float64) (index $units (regexFind "[A-Za-z]*$" $given))) $outputs) -}}
{{- fail (printf "resources.limits.memory: %v is not above HAPAX_CALL__OUTPUT_BYTES_MAX (%.0f bytes): the outputs of one record would end the pod; leave it unset" $given $outputs) -}}
{{- end -}}
{{- merge $resources (dict "requests" (dict "memory" $given)) | toYaml -}}
{{- end }}
