{{- /* Owners that aren't paused and may stand between a pod and one that is. A test compares them with what the keeper may read. */}}
{{- define "tenure.owners.between" -}}
- {group: "", kinds: [Pod, ReplicationController]}
- {group: apps, kinds: [DaemonSet]}
- {group: argoproj.io, kinds: [Rollout]}
- {group: batch, kinds: [CronJob]}
- {group: batch.tensorstack.dev, kinds: [BeamJob, CronWorkflowRun, WorkflowRun]}
- {group: serving.knative.dev, kinds: [Configuration, Revision, Service]}
- {group: serving.kserve.io, kinds: [InferenceService]}
- {group: sparkoperator.k8s.io, kinds: [ScheduledSparkApplication]}
- {group: tensorstack.dev, kinds: [AutoTuneExperiment, Explorer]}
{{- end }}

{{- /*
The resource of each of these kinds and of those that are paused, as JSON: an object whose keys are GROUP/KIND. The resource of a kind
between is its name in small letters with an s.
*/}}
{{- define "tenure.owners.resources" -}}
{{- $resources := dict }}
{{- range $row := include "tenure.owners.between" . | fromYamlArray }}
{{-   range .kinds }}
{{-     $_ := set $resources (printf "%s/%s" $row.group .) (printf "%ss" (lower .)) }}
{{-   end }}
{{- end }}
{{- range $row := .Files.Get "files/owners.yaml" | fromYamlArray }}
{{-   range $kind, $resource := .kinds }}
{{-     $_ := set $resources (printf "%s/%s" $row.group $kind) $resource }}
{{-   end }}
{{- end }}
{{- range .Values.keeper.owners }}
{{-   $_ := set $resources (printf "%s/%s" .group .kind) .resource }}
{{- end }}
{{- toJson $resources }}
{{- end }}

{{- /* The same resources by group, each with its status, as JSON: a list of apiGroups and resources. */}}
{{- define "tenure.owners.rules" -}}
{{- $groups := dict }}
{{- range $kind, $resource := include "tenure.owners.resources" . | fromJson }}
{{-   $group := splitList "/" $kind | first }}
{{-   $_ := set $groups $group (concat (get $groups $group | default list) (list $resource (printf "%s/status" $resource)) | uniq) }}
{{- end }}
{{- $rules := list }}
{{- range $group, $resources := $groups }}
{{-   $rules = append $rules (dict "apiGroups" (list $group) "resources" (sortAlpha $resources)) }}
{{- end }}
{{- toJson $rules }}
{{- end }}

{{- /* The keys of a path, as JSON. What follows metadata.annotations. is one key, which may have dots. */}}
{{- define "tenure.owners.keys" -}}
{{- $annotations := "metadata.annotations." }}
{{- hasPrefix $annotations . | ternary (list "metadata" "annotations" (trimPrefix $annotations .)) (splitList "." .) | toJson }}
{{- end }}

{{- /* The actions of Volcano's Commands that pause and resume, as JSON. */}}
{{- define "tenure.owners.actions" -}}
{{- $actions := list }}
{{- range .Files.Get "files/owners.yaml" | fromYamlArray }}
{{-   range .actions }}{{- $actions = concat $actions . }}{{- end }}
{{- end }}
{{- range .Values.keeper.owners }}
{{-   with .command }}{{- $actions = append (append $actions .pause) .resume }}{{- end }}
{{- end }}
{{- $actions | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* The resources that are paused, each with the fields that a pause writes, as JSON: a list of group, resources and fields. */}}
{{- define "tenure.owners.paused" -}}
{{- $hasKueue := (include "tenure.kueue" . | fromJson).enabled }}
{{- /* those of one group with the same fields share a row */}}
{{- $rows := dict }}
{{- range $row := .Files.Get "files/owners.yaml" | fromYamlArray }}
{{-   if or $hasKueue (ne .group "kueue.x-k8s.io") }}
{{-     range $kind, $resource := .kinds }}
{{-       $key := list $row.group (get $row.fields $kind) | toJson }}
{{-       $_ := set $rows $key (append (get $rows $key | default list) $resource | uniq) }}
{{-     end }}
{{-   end }}
{{- end }}
{{- $own := dict }}
{{- range .Values.keeper.owners }}
{{-   $key := list .group .resource | toJson }}
{{-   $_ := set $own $key (concat (get $own $key | default list) (empty .command | ternary (list .path) list)) }}
{{- end }}
{{- range $key, $fields := $own }}
{{-   $of := fromJsonArray $key }}
{{-   $key := list (first $of) $fields | toJson }}
{{-   $_ := set $rows $key (append (get $rows $key | default list) (last $of)) }}
{{- end }}
{{- $paused := list }}
{{- range $key, $resources := $rows }}
{{-   $of := fromJsonArray $key }}
{{-   $fields := list }}
{{-   range last $of }}{{- $fields = append $fields (include "tenure.owners.keys" . | fromJsonArray) }}{{- end }}
{{-   $paused = append $paused (dict "group" (first $of) "resources" $resources "fields" $fields) }}
{{- end }}
{{- toJson $paused }}
{{- end }}
