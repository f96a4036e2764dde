{{- /* The volume of the certificate of the admin ports, and where it is mounted. */}}
{{- define "tenure.monitoring.volume" -}}
{{- with .Values.monitoring.tls.secretName -}}
- name: admin-certs
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- define "tenure.monitoring.volumeMount" -}}
{{- if .Values.monitoring.tls.secretName -}}
- name: admin-certs
  mountPath: /admin-certs
  readOnly: true
{{- end }}
{{- end }}

{{- /* Labels of an object for Prometheus or Grafana: those of the values come first. Takes (list $ labels). */}}
{{- define "tenure.monitoring.labels" -}}
{{- merge (deepCopy (last . | default dict)) (include "tenure.labels" (list (first .) "monitoring") | fromYaml) | toYaml }}
{{- end }}

{{- /*
The groups of alerts, each alert with the address of its page and the labels of the values. Without a keeper there are no
alerts about keepers. Takes (list $ rules).
*/}}
{{- define "tenure.monitoring.alerts" -}}
{{- $root := first . }}
{{- $rules := last . }}
{{- $unknown := $rules.disabled }}
{{- $groups := list }}
{{- range $group := ($root.Files.Get "files/monitoring/alerts.yaml" | fromYaml).groups }}
{{-   $kept := list }}
{{-   range $rule := $group.rules }}
{{-     if has $rule.alert $rules.disabled }}
{{-       $unknown = without $unknown $rule.alert }}
{{-     else }}
{{-       with $rules.runbookBaseURL }}
{{-         $_ := set $rule.annotations "runbook_url" (printf "%s/%s.md" (trimSuffix "/" .) $rule.alert) }}
{{-       end }}
{{-       $kept = append $kept (set $rule "labels" (merge (deepCopy ($rules.alertLabels | default dict)) $rule.labels)) }}
{{-     end }}
{{-   end }}
{{-   if and $kept (or (ne $group.name "tenure-keeper") (include "tenure.hasKeeper" $root)) }}
{{-     $groups = append $groups (set $group "rules" $kept) }}
{{-   end }}
{{- end }}
{{- with $unknown }}
{{-   fail (printf "monitoring.rules.disabled: Invalid value: %q: must be the name of an alert that docs/alerts.md lists" (first .)) }}
{{- end }}
{{- dict "groups" $groups | toYaml }}
{{- end }}
