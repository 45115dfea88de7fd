{{- /* KEDA logs in to Kafka as the service does. Both say the same in different words, and KEDA reads
keys of the Secret or variables of the container, no files. */ -}}

{{- define "hapax.keda.protocol" -}}
{{- .Values.settings.HAPAX_KAFKA__SECURITY__PROTOCOL | default "plaintext" | toString | lower -}}
{{- end }}

{{- define "hapax.keda.mechanism" -}}
{{- if hasPrefix "sasl_" (include "hapax.keda.protocol" .) -}}
{{- .Values.settings.HAPAX_KAFKA__SECURITY__SASL_MECHANISM | default "" | toString | upper -}}
{{- end -}}
{{- end }}

{{- define "hapax.keda.sasl" -}}
{{- $mechanism := include "hapax.keda.mechanism" . -}}
{{- $words := dict "" "none" "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512" "OAUTHBEARER" "oauthbearer" -}}
{{- if and (hasPrefix "sasl_" (include "hapax.keda.protocol" .)) (not $mechanism) -}}
{{- fail "autoscaling: HAPAX_KAFKA__SECURITY__SASL_MECHANISM is missing, so that KEDA does not know how to log in" -}}
{{- end -}}
{{- if not (hasKey $words $mechanism) -}}
{{- fail (printf "autoscaling: KEDA does not know HAPAX_KAFKA__SECURITY__SASL_MECHANISM %s; choose autoscaling.trigger: prometheus" $mechanism) -}}
{{- end -}}
{{- index $words $mechanism -}}
{{- end }}

{{- define "hapax.keda.tls" -}}
{{- ternary "enable" "disable" (hasSuffix "ssl" (include "hapax.keda.protocol" .)) -}}
{{- end }}

{{- /* One parameter, as a line of JSON: from a variable, from a variable of extraEnv, or from a key of
the Secret that the setting names as a file. Nothing when the setting is not there, unless needed. */ -}}
{{- define "hapax.keda.parameter" -}}
{{- $settings := .root.Values.settings -}}
{{- $path := index $settings (printf "%s_FILE" .name) | default "" -}}
{{- if hasSuffix "_FILE" .name -}}{{- $path = index $settings .name | default "" -}}{{- end -}}
{{- $extra := list -}}
{{- range .root.Values.extraEnv -}}{{- $extra = append $extra .name -}}{{- end -}}
{{- if $path -}}
{{- if not (regexMatch "^/run/secrets/hapax/[^/]+$" $path) -}}
{{- fail (printf "autoscaling: KEDA reads keys of the Secret and not the file %s; put it below /run/secrets/hapax, or choose autoscaling.trigger: prometheus" $path) -}}
{{- end -}}
{{- dict "secret" (dict "parameter" .parameter "name" (include "hapax.secret" .root) "key" (base $path)) | toJson -}}
{{- else if and (not (hasSuffix "_FILE" .name)) (or (hasKey $settings .name) (has .name $extra)) -}}
{{- dict "env" (dict "parameter" .parameter "name" .name "containerName" "hapax") | toJson -}}
{{- else if .needed -}}
{{- fail (printf "autoscaling: %s is missing among the settings, so that KEDA cannot log in; choose autoscaling.trigger: prometheus" .name) -}}
{{- else -}}
{}
{{- end -}}
{{- end }}

{{- /* {env: [...], secret: [...]} of the TriggerAuthentication. */ -}}
{{- define "hapax.keda.login" -}}
{{- $prefix := "HAPAX_KAFKA__SECURITY__" -}}
{{- $wanted := list -}}
{{- $sasl := include "hapax.keda.sasl" . -}}
{{- if eq $sasl "oauthbearer" -}}
{{- if index .Values.settings "HAPAX_KAFKA__SECURITY__OAUTH_CA_FILE" -}}
{{- fail "autoscaling: KEDA takes no authority of its own for the token service (HAPAX_KAFKA__SECURITY__OAUTH_CA_FILE); choose autoscaling.trigger: prometheus" -}}
{{- end -}}
{{- $wanted = list (list "username" "OAUTH_CLIENT_ID" true) (list "password" "OAUTH_CLIENT_SECRET" true) (list "oauthTokenEndpointUri" "OAUTH_TOKEN_URL" true) (list "scopes" "OAUTH_SCOPE" false) -}}
{{- else if ne $sasl "none" -}}
{{- $wanted = list (list "username" "USERNAME" true) (list "password" "PASSWORD" true) -}}
{{- end -}}
{{- if eq (include "hapax.keda.tls" .) "enable" -}}
{{- $wanted = concat $wanted (list (list "ca" "CA_FILE" false) (list "cert" "CERTIFICATE_FILE" false) (list "key" "KEY_FILE" false) (list "keyPassword" "KEY_PASSWORD" false)) -}}
{{- end -}}
{{- $env := list -}}{{- $secret := list -}}
{{- range $wanted -}}
{{- $found := include "hapax.keda.parameter" (dict "root" $ "parameter" (index . 0) "name" (printf "%s%s" $prefix (index . 1)) "needed" (index . 2)) | fromJson -}}
{{- with $found.env -}}{{- $env = append $env . -}}{{- end -}}
{{- with $found.secret -}}{{- $secret = append $secret . -}}{{- end -}}
{{- end -}}
{{- dict "env" $env "secret" $secret | toJson -}}
{{- end }}
