{{/* What the pods of all components have in common. */}}

{{/* (list root componentValues serviceAccountName).
     Service links are off: a Service named lorikeet-engine would inject LORIKEET_ENGINE_PORT and its like, which the
     settings would take for their own. */}}
{{- define "lorikeet.podDefaults" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
serviceAccountName: {{ index . 2 }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* (list root subcommand…): the container's image, command and confinement. */}}
{{- define "lorikeet.containerDefaults" -}}
{{- $root := index . 0 -}}
image: {{ include "lorikeet.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [lorikeet]
args: {{ rest . | toJson }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* (list root names…): one checksum annotation, so that changed settings or chart-made secrets restart the pods. */}}
{{- define "lorikeet.checksum" -}}
{{- $root := index . 0 -}}
{{- $text := "" -}}
{{- range rest . -}}
{{- $text = print $text (include (print $root.Template.BasePath "/" .) $root) -}}
{{- end -}}
checksum/settings: {{ sha256sum $text }}
{{- end -}}

{{/* (list root variable key): the variable out of secrets.<key>. */}}
{{- define "lorikeet.secretEnv" -}}
{{- $root := index . 0 -}}
{{- $key := index . 2 -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef:
      name: {{ include (print "lorikeet.secretName." $key) $root }}
      key: {{ index $root.Values.secrets $key "key" }}
{{- end -}}

{{/* What a client of the database, the broker and the engine needs: gateway and worker. */}}
{{- define "lorikeet.clientEnv" -}}
{{ include "lorikeet.secretEnv" (list . "LORIKEET_DATABASE_URL" "database") }}
{{- if include "lorikeet.givenSecret" (list . "databasePlatform" "") }}
{{ include "lorikeet.secretEnv" (list . "LORIKEET_DATABASE_PLATFORM_URL" "databasePlatform") }}
{{- end }}
{{ include "lorikeet.secretEnv" (list . "LORIKEET_BROKER_URL" "broker") }}
- name: LORIKEET_ENGINE_ENDPOINT
  value: tcp://{{ include "lorikeet.fullname" . }}-engine:8200
{{- end -}}

{{/* Credentials of the bucket out of one Secret; none = the service account's own identity. */}}
{{- define "lorikeet.bucketEnv" -}}
{{- $secret := . -}}
{{- if $secret -}}
{{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ . }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lorikeet.volumes" -}}
- name: data
  persistentVolumeClaim:
    claimName: {{ include "lorikeet.claimName" . }}
- name: engine-socket-key
  secret:
    secretName: {{ include "lorikeet.secretName.engineSocketKey" . }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.secrets.engineSocketKey.key | quote }}, path: socket.key}
{{- if .Values.model.existingClaim }}
- name: models
  persistentVolumeClaim:
    claimName: {{ .Values.model.existingClaim }}
    readOnly: true
{{- end }}
- name: tmp
  emptyDir: {}
{{- end -}}

{{/* Every mount except the data volume, which the engine mounts read-only and the others do not. */}}
{{- define "lorikeet.mounts" -}}
- {name: engine-socket-key, mountPath: /etc/lorikeet/engine, readOnly: true}
{{- if .Values.model.existingClaim }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{/* (list path port periodSeconds failureThreshold) */}}
{{- define "lorikeet.probe" -}}
httpGet:
  path: {{ index . 0 }}
  port: {{ index . 1 }}
periodSeconds: {{ index . 2 }}
timeoutSeconds: 3
failureThreshold: {{ index . 3 }}
{{- end -}}
