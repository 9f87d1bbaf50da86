{{/* The labels of an object of one part: "agent" or "webhook". */}}
{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ $.root.Chart.AppVersion | quote }}
{{- end }}

{{/* Those by which its pods are selected. They never change. */}}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* Where the pods of a part run, and what pulls their images. */}}
{{- define "weir.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Namespaces whose pods the webhook is never asked about. */}}
{{- define "weir.notExempt" -}}
{key: kubernetes.io/metadata.name, operator: NotIn, values: {{ append (.Values.webhook.exemptNamespaces | default list) .Release.Namespace | uniq | toJson }}}
{{- end }}
