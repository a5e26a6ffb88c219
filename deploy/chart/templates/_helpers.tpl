{{- define "sandmesh.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}
{{- define "sandmesh.secrets" -}}{{ .Values.credentials.prefix | default (include "sandmesh.name" .) }}{{- end }}
{{- define "sandmesh.sandboxNamespace" -}}{{ .Values.sandboxNamespace | default .Release.Namespace }}{{- end }}
{{- define "sandmesh.natsHost" -}}
{{- .Values.nats.clusterIP | default (printf "%s-nats.%s.svc" (include "sandmesh.name" .) .Release.Namespace) -}}
{{- end }}
{{- define "sandmesh.natsUrls" -}}
{{- if .Values.nats.enabled -}}
{{- list (printf "%s://%s:4222" (ternary "tls" "nats" .Values.tls.enabled) (include "sandmesh.natsHost" .)) | toJson -}}
{{- else -}}
{{- .Values.nats.externalUrls | toJson -}}
{{- end -}}
{{- end }}
{{- /* part: "nats", "pool" or "installer" */ -}}
{{- define "sandmesh.selector" -}}
app.kubernetes.io/name: sandmesh
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}
{{- /* Not app.kubernetes.io/managed-by: sandmesh, which is the sandboxes' own. */ -}}
{{- define "sandmesh.labels" -}}
{{ include "sandmesh.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}
{{- define "sandmesh.hardened" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
{{- define "sandmesh.daemon" -}}
{{- $d := .Values.daemon -}}
{{- if eq $d.by "hostPath" -}}
{{- dict "by" "hostPath" "path" (printf "%s/%s" $d.hostFolder $d.version) | toJson -}}
{{- else if eq $d.by "image" -}}
{{- dict "by" "image" "image" $d.image "pullPolicy" $d.imagePullPolicy | toJson -}}
{{- else -}}
{{- dict "by" "init" "image" $d.image "pullPolicy" $d.imagePullPolicy "command" (list "/sandmesh-installer" "--copy" "/" "/target") | toJson -}}
{{- end -}}
{{- end }}
