{{- /*
All that Tenure's own accounts write. Roles and ValidatingAdmissionPolicies are made from these rows. Each has apiGroups, resources
and verbs of a rule of RBAC, and more:

names: the names of the objects.
own: true for objects of the release's namespace.
tenants: true for objects that are never in kube-system, nor in the release's namespace.
when: a condition of CEL that the request must meet.
fields: the paths that an update may change. A key that ends with * is a prefix.
also: a condition of CEL that an update must meet.
*/}}
{{- define "tenure.writes.keeper" -}}
{{- if include "tenure.hasKeeper" . }}
{{- $acts := not .Values.keeper.dryRun }}
{{- $notes := list "metadata" "annotations" "tenure.dev/*" }}
{{- /* those that autoscalers read: written while a floor protects, and taken away even once that is turned off */}}
{{- $marks := list (list "metadata" "annotations" "karpenter.sh/do-not-disrupt") (list "metadata" "annotations" "cluster-autoscaler.kubernetes.io/safe-to-evict") }}
# start times
- apiGroups:
    - scheduler.tensorstack.dev
    - scheduling.k8s.io
    - scheduling.run.ai
    - scheduling.volcano.sh
    - scheduling.x-k8s.io
  resources: [podgroups]
  verbs: {{ $acts | ternary "[list, watch, patch]" "[list, watch]" }}
  fields: [[metadata, annotations, kai.scheduler/last-start-timestamp]]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, get]
{{- include "tenure.writes.reviews" . }}
# patch: a pod without an owner gets an annotation with its end, a bound one evidence of its queue, and one within a floor marks
- apiGroups: [""]
  resources: [pods]
  verbs: {{ $acts | ternary "[get, list, watch, delete, patch]" "[get, list, watch]" }}
  tenants: true
  fields: {{ prepend $marks $notes | toJson }}
{{- range include "tenure.owners.paused" . | fromJsonArray }}
- apiGroups: [{{ .group | quote }}]
  resources: {{ toJson .resources }}
  verbs: {{ $acts | ternary "[get, list, watch, patch]" "[get, list, watch]" }}
  tenants: true
  fields: {{ append .fields $notes | toJson }}
  {{- if has (list "spec" "persistentVolumeClaimRetentionPolicy" "whenScaled") .fields }}
  # a StatefulSet that is scaled down with this value deletes the claims of its pods: a pause sets another value first
  also: >-
    object.?spec.?persistentVolumeClaimRetentionPolicy.?whenScaled.orValue("Retain") != "Delete" ||
    object.?spec.?replicas.orValue(1) >= oldObject.?spec.?replicas.orValue(1)
  {{- end }}
{{- end }}
{{- if $acts }}
# Volcano's Commands, by which its Jobs are paused and resumed
- apiGroups: [bus.volcano.sh]
  resources: [commands]
  verbs: [create]
  tenants: true
  when: object.?action.orValue("") in {{ include "tenure.owners.actions" . }}
{{- range .Values.keeper.owners }}
{{- if eq (default "Pause" .onExpiry) "Delete" }}
# a kind that is deleted at its ceiling
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .resource }}]
  verbs: [delete]
  tenants: true
{{- end }}
{{- end }}
{{- if include "tenure.pausedHistoryLimit" . }}
# the oldest paused Jobs of a CronJob
- apiGroups: [batch]
  resources: [jobs]
  verbs: [delete]
  tenants: true
{{- end }}
# the counts of a queue's workloads: in its status or, where KAI owns the definition, in an annotation
- apiGroups: [scheduling.run.ai]
  {{- if eq (include "tenure.runaiQueueVersion" .) "v3alpha1" }}
  resources: [queues/status]
  fields: [[status]]
  {{- else }}
  resources: [queues]
  fields: [[metadata, annotations, tenure.dev/status]]
  {{- end }}
  verbs: [patch]
- apiGroups: [tenure.dev]
  resources: [extensions/status]
  verbs: [patch]
  fields: [[status]]
# for the Lease by which one of several keepers leads
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  names: [{{ include "tenure.keeper.name" . }}]
  own: true
  verbs: [create, get, update, patch]
  fields: [[spec]]
{{- if .Values.usage.enabled }}
- apiGroups: [""]
  resources: [configmaps]
  names: [{{ include "tenure.usage.name" . }}]
  own: true
  verbs: [get, patch]
  fields: [[data]]
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The questions of both servers, who reads the metrics and may this user. */}}
{{- define "tenure.writes.reviews" -}}
{{- if .Values.monitoring.tls.secretName }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end }}

{{- define "tenure.writes.webhook" -}}
{{- include "tenure.writes.reviews" . }}
{{- $configured := include "tenure.webhook.configured" . | fromJson }}
{{- $selfManaged := eq .Values.webhook.certificate.mode "selfManaged" }}
{{- $converts := include "tenure.conversionPatch" . }}
{{- if or $converts (and $selfManaged $configured.definitions) }}
# the converter in a definition that was applied with kubectl, and the CA in each definition
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  names: [queues.scheduling.run.ai]
  verbs: [get, patch]
  {{- if $converts }}
  fields: [[spec, conversion], [metadata, annotations, cert-manager.io/inject-ca-from]]
  {{- $client := include "tenure.webhook.clientConfig" (list . "/convert") | fromYaml }}
  {{- $is := "object.?spec.?conversion.?webhook.?clientConfig" }}
  {{- if $client.url }}
  also: {{ printf `%s.?url.orValue("") == %s && !%s.?service.hasValue()` $is (toJson $client.url) $is | quote }}
  {{- else }}
  also: {{ printf `!%s.?url.hasValue() && [%s.?service.?namespace, %s.?service.?name, %s.?service.?path].map(of, of.orValue("")) == %s` $is $is $is $is (list $client.service.namespace $client.service.name $client.service.path | toJson) | quote }}
  {{- end }}
  {{- else }}
  fields: [[spec, conversion, webhook, clientConfig, caBundle]]
  {{- end }}
{{- end }}
{{- if $selfManaged }}
# the authorities of the webhook's certificate
{{- range $kind := list "validating" "mutating" }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [{{ $kind }}webhookconfigurations]
  names: {{ get $configured $kind | toJson }}
  verbs: [get, patch]
  fields: [[webhooks]]
  also: >-
    object.webhooks.size() == oldObject.webhooks.size() &&
    object.webhooks.all(new, oldObject.webhooks.exists(old, old.name == new.name &&
    new.all(key, key == "clientConfig" || optional.of(new[key]) == old[?key]) && old.all(key, key in new) &&
    new.clientConfig.all(key, key == "caBundle" || optional.of(new.clientConfig[key]) == old.clientConfig[?key]) &&
    old.clientConfig.all(key, key == "caBundle" || key in new.clientConfig)))
{{- end }}
- apiGroups: [""]
  resources: [secrets]
  names: [{{ include "tenure.webhook.secretName" . }}]
  own: true
  verbs: [get, patch]
  fields: [[data]]
- apiGroups: [""]
  resources: [configmaps]
  names: [{{ include "tenure.webhook.caConfigMap" . }}]
  own: true
  verbs: [get, patch]
  fields: [[data]]
# a deleted Lease is recreated
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  names: [{{ include "tenure.webhook.name" . }}]
  own: true
  verbs: [create, get, update]
  fields: [[spec]]
{{- end }}
{{- if include "tenure.webhook.wakesUp" . }}
# a pod is woken by a nomination to a node, which is taken back at once
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
  fields: [[status, nominatedNodeName]]
{{- end }}
{{- if include "tenure.webhook.respondsToEvictions" . }}
# until when a floor holds an Eviction back: an entry that no other responder writes
- apiGroups: [lifecycle.k8s.io]
  resources: [evictions/status]
  verbs: [patch]
  fields: [[status, responders]]
  also: >-
    object.?status.?responders.orValue([]).all(of, of.?name.orValue("") == "tenure.dev/floor" ||
    of in oldObject.?status.?responders.orValue([]))
{{- end }}
{{- end }}

{{- /* The rules of a role for the rows of an account: of the release's namespace, or of the cluster. Takes (list $ account own). */}}
{{- define "tenure.writes.rules" -}}
{{- $own := last . }}
{{- range include (printf "tenure.writes.%s" (index . 1)) (first .) | fromYamlArray }}
{{- if eq $own (.own | default false) }}
{{- $verbs := .verbs }}
{{- if and .names (has "create" $verbs) }}
{{- $verbs = without $verbs "create" }}
# a right to create can't be restricted by name; the policy of the account does
- apiGroups: {{ toJson .apiGroups }}
  resources: {{ toJson .resources }}
  verbs: [create]
{{- end }}
- apiGroups: {{ toJson .apiGroups }}
  resources: {{ toJson .resources }}
  {{- with .names }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: {{ toJson $verbs }}
{{- end }}
{{- end }}
{{- end }}

{{- /*
The rows of an account for its policy, as JSON: a list of rows, each with applies (a condition of CEL: the request is one of the row),
fields (their names), may (by the path of an object within the object, as JSON: the keys that an update may change there) and also.
Rows that differ in their resources alone are one. Takes (list $ account).
*/}}
{{- define "tenure.writes.rows" -}}
{{- $own := include "tenure.namespace" (first .) }}
{{- $operations := dict "create" "CREATE" "update" "UPDATE" "patch" "UPDATE" "delete" "DELETE" }}
{{- $alike := dict }}
{{- range $row := include (printf "tenure.writes.%s" (last .)) (first .) | fromYamlArray }}
{{-   $done := list }}
{{-   range .verbs }}{{- $done = append $done (get $operations .) }}{{- end }}
{{-   $resources := list }}
{{-   range $group := .apiGroups }}
{{-     range $row.resources }}{{- $resources = append $resources (printf "%s/%s" $group .) }}{{- end }}
{{-   end }}
{{-   $key := merge (dict "operations" (compact $done | uniq)) (omit . "apiGroups" "resources" "verbs") | toJson }}
{{-   $_ := set $alike $key (concat (get $alike $key | default list) $resources) }}
{{- end }}
{{- $rows := list }}
{{- range $key, $resources := $alike }}
{{-   $row := fromJson $key }}
{{-   $applies := list (printf "variables.resource in %s" (toJson $resources)) (printf "request.operation in %s" (toJson $row.operations)) }}
{{-   with $row.names }}{{- $applies = append $applies (printf "request.?name.orValue(\"\") in %s" (toJson .)) }}{{- end }}
{{-   if $row.own }}{{- $applies = append $applies (printf "request.?namespace.orValue(\"\") == %s" (toJson $own)) }}{{- end }}
{{-   if $row.tenants }}{{- $applies = append $applies (list "kube-system" $own | uniq | toJson | printf "!(request.?namespace.orValue(\"\") in %s)") }}{{- end }}
{{-   with $row.when }}{{- $applies = append $applies . }}{{- end }}
{{-   $names := list }}
{{-   range $row.fields }}{{- $names = append $names (join "." .) }}{{- end }}
{{-   $may := dict }}
{{-   range $field := concat ($row.fields | default list) (list (list "metadata" "generation") (list "metadata" "managedFields") (list "metadata" "resourceVersion")) }}
{{-     range $depth, $head := $field }}
{{-       $path := slice $field 0 $depth | toJson }}
{{-       $_ := set $may $path (append (get $may $path | default list) $head | uniq) }}
{{-     end }}
{{-   end }}
{{-   if $row.operations }}
{{-     $rows = append $rows (dict "applies" (join " && " $applies) "fields" $names "may" $may "also" $row.also) }}
{{-   end }}
{{- end }}
{{- toJson $rows }}
{{- end }}

{{- /* A CEL expression: the map at a path of an object. Takes (list object path), the path as JSON. dyn, or the keys of {} would be numbers. */}}
{{- define "tenure.writes.at" -}}
optional.of({{ first . }}){{ range last . | fromJsonArray }}[?{{ toJson . }}]{{ end }}.orValue(dyn({}))
{{- end }}

{{- /* A CEL expression: the changed keys are among these. Takes (list variable keys). */}}
{{- define "tenure.writes.among" -}}
{{- $among := list }}
{{- $exact := list }}
{{- range last . }}
{{-   if hasSuffix "*" . }}
{{-     $among = append $among (printf "key.startsWith(%s)" (trimSuffix "*" . | toJson)) }}
{{-   else }}
{{-     $exact = append $exact . }}
{{-   end }}
{{- end }}
{{- with $exact }}{{- $among = append $among (printf "key in %s" (toJson .)) }}{{- end }}
{{- printf "%s.all(key, %s)" (first .) (join " || " $among) }}
{{- end }}
