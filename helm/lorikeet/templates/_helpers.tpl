{{/* Names and labels. Arguments are the root context, or (list root component) where a component is named. */}}

{{- define "lorikeet.name" -}}
{{- .Chart.Name -}}
{{- end -}}

{{/* 49 characters leave room for the longest suffix of a Service, "-gateway-admin", within a DNS label. */}}
{{- define "lorikeet.fullname" -}}
{{- $name := include "lorikeet.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 49 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 49 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lorikeet.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "lorikeet.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "lorikeet.labels" -}}
{{- $root := index . 0 -}}
{{ include "lorikeet.selectorLabels" . }}
app.kubernetes.io/part-of: lorikeet
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "lorikeet.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "lorikeet.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "lorikeet.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* The name of the Secret behind secrets.<key>: (list root key suffix). */}}
{{- define "lorikeet.secretName" -}}
{{- $root := index . 0 -}}
{{- $key := index . 1 -}}
{{- $secret := index $root.Values.secrets $key -}}
{{- if and $secret.value $secret.existingSecret -}}
{{- fail (printf "secrets.%s: set value or existingSecret, not both" $key) -}}
{{- end -}}
{{- $secret.existingSecret | default (printf "%s-%s" (include "lorikeet.fullname" $root) (index . 2)) -}}
{{- end -}}

{{- define "lorikeet.secretName.database" -}}{{ include "lorikeet.secretName" (list . "database" "database") }}{{- end -}}
{{- define "lorikeet.secretName.databasePlatform" -}}{{ include "lorikeet.secretName" (list . "databasePlatform" "database-platform") }}{{- end -}}
{{- define "lorikeet.secretName.databaseOwner" -}}{{ include "lorikeet.secretName" (list . "databaseOwner" "database-owner") }}{{- end -}}
{{- define "lorikeet.secretName.limits" -}}{{ include "lorikeet.secretName" (list . "limits" "limits") }}{{- end -}}
{{- define "lorikeet.secretName.broker" -}}{{ include "lorikeet.secretName" (list . "broker" "broker") }}{{- end -}}
{{- define "lorikeet.secretName.pepper" -}}{{ include "lorikeet.secretName" (list . "pepper" "pepper") }}{{- end -}}
{{- define "lorikeet.secretName.engineSocketKey" -}}{{ include "lorikeet.secretName" (list . "engineSocketKey" "engine-socket-key") }}{{- end -}}

{{/* (list root key instead): the key of secrets that is used: `key` where it is given, else `instead`. */}}
{{- define "lorikeet.givenSecret" -}}
{{- $secret := index (index . 0).Values.secrets (index . 1) -}}
{{- ternary (index . 1) (index . 2) (or (ne $secret.value "") (ne $secret.existingSecret "")) -}}
{{- end -}}

{{- define "lorikeet.claimName" -}}
{{- .Values.storage.existingClaim | default (printf "%s-data" (include "lorikeet.fullname" .)) -}}
{{- end -}}
