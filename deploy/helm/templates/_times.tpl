{{- /* What the settings say about time, in seconds, and what follows from it for the pods.
settings.yaml has the defaults, from the code. */ -}}

{{- define "hapax.seconds" -}}
{{- $defaults := (.root.Files.Get "settings.yaml" | fromYaml).defaults -}}
{{- $text := index .root.Values.settings .name | default (index $defaults .name) | toString -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (index $units (regexFind "[a-z]+$" $text)) -}}
{{- end }}

{{- /* The longest that a stop may take: a call that the watchdog ends, or a transaction in doubt. */ -}}
{{- define "hapax.stop" -}}
{{- $margins := (.Files.Get "settings.yaml" | fromYaml).margins -}}
{{- $watchdog := include "hapax.seconds" (dict "root" . "name" "HAPAX_WATCHDOG__TIMEOUT") | float64 -}}
{{- $transaction := include "hapax.seconds" (dict "root" . "name" "HAPAX_TRANSACTION__TIMEOUT") | float64 -}}
{{- $shutdown := include "hapax.seconds" (dict "root" . "name" "HAPAX_SHUTDOWN__TIMEOUT") | float64 -}}
{{- addf (maxf $watchdog (addf $transaction $margins.closing)) $shutdown | ceil -}}
{{- end }}

{{- define "hapax.grace" -}}
{{- $stop := include "hapax.stop" . | float64 -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- addf $stop 5 | int64 -}}
{{- else if le ($given | float64) $stop -}}
{{- fail (printf "terminationGracePeriodSeconds: %v s is not longer than the %v s that a stop may take by HAPAX_SHUTDOWN__TIMEOUT with HAPAX_WATCHDOG__TIMEOUT or HAPAX_TRANSACTION__TIMEOUT; leave it unset" $given $stop) -}}
{{- else -}}
{{- $given | int64 -}}
{{- end -}}
{{- end }}

{{- define "hapax.liveness" -}}
{{- $probe := .Values.livenessProbe -}}
{{- $margins := (.Files.Get "settings.yaml" | fromYaml).margins -}}
{{- $least := addf (include "hapax.seconds" (dict "root" . "name" "HAPAX_WATCHDOG__TIMEOUT") | float64) $margins.liveness -}}
{{- $most := include "hapax.seconds" (dict "root" . "name" "HAPAX_GROUP__MAX_POLL_INTERVAL") | float64 -}}
{{- $period := $probe.periodSeconds | float64 -}}
{{- $threshold := $probe.failureThreshold -}}
{{- if kindIs "invalid" $threshold -}}
{{- $threshold = add1 (divf $least $period | floor | int64) -}}
{{- end -}}
{{- $patience := mulf $period $threshold -}}
{{- if le $patience $least -}}
{{- fail (printf "livenessProbe: %v s (periodSeconds times failureThreshold) is not longer than the %v s after which the watchdog has acted (HAPAX_WATCHDOG__TIMEOUT); leave failureThreshold unset" $patience $least) -}}
{{- end -}}
{{- if ge $patience $most -}}
{{- fail (printf "livenessProbe: %v s (periodSeconds times failureThreshold) is not shorter than the %v s of HAPAX_GROUP__MAX_POLL_INTERVAL: the group would take the partitions first; lower HAPAX_WATCHDOG__TIMEOUT or periodSeconds" $patience $most) -}}
{{- end -}}
{{- $threshold | int64 -}}
{{- end }}

{{- define "hapax.startup" -}}
{{- $margins := (.Files.Get "settings.yaml" | fromYaml).margins -}}
{{- $patience := mulf .Values.startupProbe.periodSeconds .Values.startupProbe.failureThreshold -}}
{{- if lt $patience ($margins.start | float64) -}}
{{- fail (printf "startupProbe: %v s (periodSeconds times failureThreshold) is shorter than the %v s that a start may take" $patience $margins.start) -}}
{{- end -}}
{{- .Values.startupProbe.failureThreshold | int64 -}}
{{- end }}

{{- /* A pod that leaves has to be gone, and missed by its group, before the next one leaves. */ -}}
{{- define "hapax.leaving" -}}
{{- $session := include "hapax.seconds" (dict "root" . "name" "HAPAX_GROUP__SESSION_TIMEOUT") | float64 -}}
{{- addf (include "hapax.grace" . | float64) $session 5 | ceil | int64 -}}
{{- end }}
