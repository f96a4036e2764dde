{{- /*
The kinds between a pod and an owner that is paused, with these owners. fields: by which each of the kinds is paused, if it is. held: the
fields that a pause holds at another value. A test compares all but held with the keeper's table and with what it may read.
*/}}
{{- define "tenure.owners.builtIn" -}}
- {group: "", kinds: [Pod, ReplicationController]}
- {group: apps, kinds: [DaemonSet]}
- {group: apps, kinds: [Deployment, ReplicaSet], fields: [spec.replicas]}
- group: apps
  kinds: [StatefulSet]
  fields: [spec.replicas]
  held: [spec.persistentVolumeClaimRetentionPolicy.whenScaled]
- {group: argoproj.io, kinds: [Rollout]}
- {group: batch, kinds: [CronJob]}
- {group: batch, kinds: [Job], fields: [spec.suspend]}
- {group: batch.tensorstack.dev, kinds: [BeamJob, CronWorkflowRun, WorkflowRun]}
- group: batch.tensorstack.dev
  kinds:
    - ColossalAIJob
    - DeepSpeedJob
    - GenericJob
    - MPIJob
    - PyTorchTrainingJob
    - TensorFlowTrainingJob
    - XGBoostTrainingJob
  fields: [spec.runMode.pause.enabled]
- {group: jobset.x-k8s.io, kinds: [JobSet], fields: [spec.suspend]}
- group: kubeflow.org
  kinds: [JAXJob, MPIJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob]
  fields: [spec.runPolicy.suspend]
- {group: kueue.x-k8s.io, kinds: [Workload], fields: [spec.active]}
- {group: leaderworkerset.x-k8s.io, kinds: [LeaderWorkerSet], fields: [spec.replicas]}
- {group: ray.io, kinds: [RayCluster, RayJob], fields: [spec.suspend]}
- {group: ray.io, kinds: [RayService]}
- {group: serving.knative.dev, kinds: [Configuration, Revision, Service]}
- {group: serving.kserve.io, kinds: [InferenceService]}
- {group: sparkoperator.k8s.io, kinds: [ScheduledSparkApplication]}
- {group: sparkoperator.k8s.io, kinds: [SparkApplication], fields: [spec.suspend]}
- {group: tensorstack.dev, kinds: [AutoTuneExperiment, Explorer]}
- {group: tensorstack.dev, kinds: [MLService], fields: [spec.runMode]}
- {group: tensorstack.dev, kinds: [Notebook, TensorBoard, Tensorboard], fields: [spec.runMode, spec.suspend]}
- {group: tensorstack.dev, kinds: [SimpleMLService], fields: [spec.replicas]}
- {group: trainer.kubeflow.org, kinds: [TrainJob], fields: [spec.suspend]}
- {group: workload.codeflare.dev, kinds: [AppWrapper], fields: [spec.suspend]}
{{- end }}

{{- /*
The resource of each of these kinds and of those of keeper.owners, as JSON: an object whose keys are GROUP/KIND. The resource of a
built-in kind is its name in small letters with an s.
*/}}
{{- define "tenure.owners.resources" -}}
{{- $resources := dict }}
{{- range $row := include "tenure.owners.builtIn" . | fromYamlArray }}
{{-   range .kinds }}
{{-     $_ := set $resources (printf "%s/%s" $row.group .) (printf "%ss" (lower .)) }}
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

{{- /* The resources that are paused, each with the fields by which they are, as JSON: a list of group, resources and fields. */}}
{{- define "tenure.owners.paused" -}}
{{- $hasKueue := (include "tenure.kueue" . | fromJson).enabled }}
{{- $own := dict }}
{{- range .Values.keeper.owners }}
{{-   $key := list .group .resource | toJson }}
{{-   $_ := set $own $key (append (get $own $key | default list) (splitList "." .path)) }}
{{- end }}
{{- $rows := list }}
{{- range include "tenure.owners.builtIn" . | fromYamlArray }}
{{-   if and .fields (or $hasKueue (ne .group "kueue.x-k8s.io")) }}
{{-     $fields := list }}
{{-     range concat .fields (.held | default list) }}{{- $fields = append $fields (splitList "." .) }}{{- end }}
{{-     $resources := list }}
{{-     range $kind := .kinds }}
{{-       $resources = append $resources (printf "%ss" (lower $kind)) }}
{{-     end }}
{{-     $rows = append $rows (dict "group" .group "resources" ($resources | uniq) "fields" $fields) }}
{{-   end }}
{{- end }}
{{- range $key, $fields := $own }}
{{-   $of := fromJsonArray $key }}
{{-   $rows = append $rows (dict "group" (first $of) "resources" (list (last $of)) "fields" $fields) }}
{{- end }}
{{- toJson $rows }}
{{- end }}
