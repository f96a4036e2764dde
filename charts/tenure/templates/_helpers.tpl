{{- define "tenure.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 55 | trimSuffix "-" }}
{{- end }}

{{- /* At most 55 characters, so that "-webhook" fits behind it in the name of a Service. */}}
{{- define "tenure.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 55 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 55 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "tenure.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "tenure.webhook.name" -}}
{{- include "tenure.fullname" . }}-webhook
{{- end }}

{{- define "tenure.keeper.name" -}}
{{- .Values.keeper.nameOverride | default (printf "%s-keeper" (include "tenure.fullname" .)) }}
{{- end }}

{{- /*
Refuses a second release: its webhook would hold up the same queues until it runs, and its keeper pause the same workloads.
Where charts are rendered without a look into the cluster, nothing shows another. Takes $.
*/}}
{{- define "tenure.checkOtherReleases" -}}
{{- $found := lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" "" }}
{{- range ternary list ($found.items | default list) (or .Values.allowOtherReleases (empty $found) | empty | not) }}
{{-   $labels := .metadata.labels | default dict }}
{{-   $release := get $labels "app.kubernetes.io/instance" }}
{{-   $namespace := get (.metadata.annotations | default dict) "meta.helm.sh/release-namespace" | default $.Release.Namespace }}
{{-   $isTenure := eq "tenure webhook" (printf "%s %s" (get $labels "app.kubernetes.io/part-of") (get $labels "app.kubernetes.io/component")) }}
{{-   if and $isTenure (ne (list $release $namespace | toJson) (list $.Release.Name $.Release.Namespace | toJson)) }}
{{-     fail (printf "Tenure is installed already, as release %s in namespace %s: two would review the same queues and pause the same workloads. Upgrade or uninstall that one, or set allowOtherReleases" $release $namespace) }}
{{-   end }}
{{- end }}
{{- end }}

{{- /* "true" if there is a keeper, else "". */}}
{{- define "tenure.hasKeeper" -}}
{{- if and .Values.options.durationKeeper.enabled .Values.keeper.enabled }}true{{ end }}
{{- end }}

{{- /* The service account of a program. Takes (list $ component). */}}
{{- define "tenure.serviceAccountName" -}}
{{- $name := include (printf "tenure.%s.name" (last .)) (first .) }}
{{- (get (first .).Values (last .)).serviceAccount.name | default $name }}
{{- end }}

{{- /* The service account of a program as an object, unless it is there already. Takes (list $ component). */}}
{{- define "tenure.serviceAccount" -}}
{{- $values := (get (first .).Values (last .)).serviceAccount }}
{{- if $values.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "tenure.serviceAccountName" . }}
  namespace: {{ include "tenure.namespace" (first .) }}
  labels:
    {{- include "tenure.labels" . | nindent 4 }}
  {{- with $values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
{{- end }}
{{- end }}

{{- /* A duration such as 1m30s in milliseconds. */}}
{{- define "tenure.milliseconds" -}}
{{- $total := 0 }}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 }}
{{- range regexFindAll "[0-9]+(ms|h|m|s)" . -1 }}
{{-   $unit := regexFind "[a-z]+$" . }}
{{-   $total = add $total (mul (trimSuffix $unit . | int64) (get $units $unit)) }}
{{- end }}
{{- $total }}
{{- end }}

{{- /* Refuses times with which the keeper wouldn't start. Takes keeper.leaderElection. */}}
{{- define "tenure.checkLeaderElection" -}}
{{- range list (list "leaseDuration" "renewDeadline") (list "renewDeadline" "retryPeriod") }}
{{-   $longer := get $ (first .) }}
{{-   $shorter := get $ (last .) }}
{{-   if le (include "tenure.milliseconds" $longer | int64) (include "tenure.milliseconds" $shorter | int64) }}
{{-     fail (printf "keeper.leaderElection.%s must be longer than %s: %s isn't longer than %s" (first .) (last .) $longer $shorter) }}
{{-   end }}
{{- end }}
{{- if eq (include "tenure.milliseconds" .retryPeriod) "0" }}
{{-   fail (printf "keeper.leaderElection.retryPeriod must be longer than zero: it is %s" .retryPeriod) }}
{{- end }}
{{- end }}

{{- /* Without a leader, several keepers would all say the same. */}}
{{- define "tenure.keeper.replicas" -}}
{{- .Values.keeper.dryRun | default false | ternary (min 1 .Values.keeper.replicas) .Values.keeper.replicas }}
{{- end }}

{{- define "tenure.config.name" -}}
{{- include "tenure.fullname" . }}-config
{{- end }}

{{- /* The ConfigMap that has the keeper's record of usage. */}}
{{- define "tenure.usage.name" -}}
{{- include "tenure.fullname" . }}-usage
{{- end }}

{{- /* The most paused Jobs of a CronJob that are kept, as a text: 0 is a limit. Empty: all of them. */}}
{{- define "tenure.pausedHistoryLimit" -}}
{{- $limit := .Values.keeper.pausedHistoryLimit }}
{{- if not (or (kindIs "invalid" $limit) (kindIs "string" $limit)) }}{{ int64 $limit }}{{ end }}
{{- end }}

{{- /* The configuration file of keeper and webhook. They take a change up by themselves, so it makes no new pods. */}}
{{- define "tenure.config" -}}
{{- $config := dict }}
{{- with .Values.keeper.expiryNotice }}
{{-   $_ := set $config "expiryNotice" (kindIs "slice" . | ternary (join "," .) .) }}
{{- end }}
{{- if .Values.keeper.noticeOnPods }}
{{-   $_ := set $config "noticeOnPods" true }}
{{- end }}
{{- if .Values.keeper.floorOnPods }}
{{-   $_ := set $config "floorOnPods" true }}
{{- end }}
{{- with include "tenure.pausedHistoryLimit" . }}
{{-   $_ := set $config "pausedHistoryLimit" (int64 .) }}
{{- end }}
{{- with .Values.keeper.graceOnChange }}
{{-   $_ := set $config "graceOnChange" . }}
{{- end }}
{{- range $name, $value := .Values.floors }}
{{-   if $value }}
{{-     $_ := set $config $name $value }}
{{-   end }}
{{- end }}
{{- $pools := dict }}
{{- range .Values.floors.nodePools }}
{{-   if hasKey $pools .name }}
{{-     fail (printf "floors.nodePools has two rows for pool %q: remove one" .name) }}
{{-   end }}
{{-   $_ := set $pools .name true }}
{{- end }}
{{- $seen := dict }}
{{- range .Values.keeper.owners }}
{{-   if or (eq .kind "DaemonSet") (and (not .group) (has .kind (list "Pod" "Node"))) }}
{{-     fail (printf "keeper.owners must not have kind %s: pods of a DaemonSet and static pods are never touched, and a pod is deleted, not paused: remove the row" .kind) }}
{{-   end }}
{{-   $key := printf "%s %s %s" .group .kind .path }}
{{-   if hasKey $seen $key }}
{{-     fail (printf "keeper.owners has two rows for %s of kind %s in group %q: remove one" .path .kind .group) }}
{{-   end }}
{{-   $_ := set $seen $key true }}
{{-   if and (hasPrefix "metadata.annotations." .path) (not (kindIs "string" .value)) }}
{{-     fail (printf "keeper.owners: value %v for path %s of kind %s must be a string, as annotations are: write it in quotes" .value .path .kind) }}
{{-   end }}
{{- /* numbers come as floats, and large ones would be written as 1e+06 */}}
{{-   $value := kindIs "float64" .value | ternary (int64 .value) .value }}
{{-   $row := dict "group" .group "kind" .kind "path" .path "value" $value }}
{{-   if .decidesActivation }}
{{-     $_ := set $row "decidesActivation" true }}
{{-   end }}
{{-   if ne (hasPrefix "status." .path) (not (empty .command)) }}
{{-     fail (printf "keeper.owners: path %s of kind %s must be %s" .path .kind (ternary "within spec, or an annotation: the row has no command" "within status: the row has a command" (empty .command))) }}
{{-   end }}
{{-   with .command }}
{{-     $_ := set $row "command" . }}
{{-   end }}
{{-   with .onReversal }}
{{-     $_ := set $row "onReversal" . }}
{{-   end }}
{{-   with .onExpiry }}
{{-     if and (eq . "Delete") (eq $row.group "kueue.x-k8s.io") (eq $row.kind "Workload") }}
{{-       fail "keeper.owners must not have onExpiry Delete for a Workload of Kueue, which makes another one for the same job: leave onExpiry out" }}
{{-     end }}
{{-     $_ := set $row "onExpiry" . }}
{{-   end }}
{{-   $_ := set $config "owners" (append (default list $config.owners) $row) }}
{{- end }}
{{- $trusted := .Values.startTime.trustedWriters | default list }}
{{- if include "tenure.hasKeeper" . }}
{{-   $trusted = append $trusted (printf "system:serviceaccount:%s:%s" (include "tenure.namespace" .) (include "tenure.serviceAccountName" (list . "keeper"))) }}
{{- end }}
{{- $_ := set $config "trustedWriters" (uniq $trusted) }}
{{- with .Values.startTime.longestFormation }}
{{-   $_ := set $config "longestFormation" . }}
{{- end }}
{{- $tenancy := include "tenure.tenancy" . | fromJson }}
{{- $tenancyConfig := dict }}
{{- with $tenancy.trustedWriters }}
{{-   $_ := set $tenancyConfig "trustedWriters" . }}
{{- end }}
{{- with $tenancy.defaultQueue }}
{{-   $_ := set $tenancyConfig "defaultQueue" . }}
{{- end }}
{{- with $tenancyConfig }}
{{-   $_ := set $config "tenancy" . }}
{{- end }}
{{- with .Values.delegation.bounds }}
{{-   $bounded := dict }}
{{-   range . }}
{{-     if hasKey $bounded .queue }}
{{-       fail (printf "delegation.bounds has two rows for queue %q: remove one" .queue) }}
{{-     end }}
{{-     $_ := set $bounded .queue true }}
{{-   end }}
{{-   $_ := set $config "delegation" (dict "bounds" .) }}
{{- end }}
{{- if .Values.usage.enabled }}
{{-   $_ := set $config "usage" (dict "resources" .Values.usage.resources) }}
{{- end }}
{{- with .Values.waitForPodsReady }}
{{-   $_ := set $config "waitForPodsReady" (include "tenure.waitForPodsReady" . | fromJson) }}
{{- end }}
{{- $kueue := include "tenure.kueue" . | fromJson }}
{{- if or $kueue.queues (not $kueue.enabled) }}
{{-   $_ := set $config "kueue" $kueue }}
{{- end }}
{{- $kai := include "tenure.kai" . | fromJson }}
{{- with $kai }}
{{-   $_ := set $config "kai" . }}
{{- end }}
{{- if .Values.guard.enabled }}
{{-   $guard := include "tenure.guard" . | fromJson }}
{{-   $_ := set $config "guard" (pick $guard "schedulers" "exemptUsers" "exemptGroups" "exemptNamespaces") }}
{{- end }}
{{- with include "tenure.receivers" . | fromJsonArray }}
{{-   $_ := set $config "receivers" . }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* The files of a receiver: the value that names the Secret of each, and the file's name. */}}
{{- define "tenure.receiverFiles" -}}
{{- dict "urlSecret" "url" "tokenSecret" "token" "caSecret" "ca.crt" | toJson }}
{{- end }}

{{- /* The receivers of messages, as the configuration has them, in JSON. */}}
{{- define "tenure.receivers" -}}
{{- $rows := list }}
{{- $fields := dict "urlSecret" "urlFile" "tokenSecret" "tokenFile" "caSecret" "caFile" }}
{{- range $name, $receiver := .Values.keeper.receivers }}
{{-   if eq (empty $receiver.url) (empty $receiver.urlSecret) }}
{{-     fail (printf "keeper.receivers.%s must have exactly one of url and urlSecret" $name) }}
{{-   end }}
{{- /* the rest of an address may be a secret, and isn't shown */}}
{{-   $plain := regexFind `^http://[^/?#]*` ($receiver.url | default "") }}
{{-   $isLoopback := regexMatch `^http://(localhost|127([.][0-9]+){3}|\[[0:.]*1\])(:|$)` $plain }}
{{-   if and $plain (not $isLoopback) (not $receiver.allowHTTP) }}
{{-     fail (printf "keeper.receivers.%s.url: Invalid value: \"%s/…\": must be an https URL: http is for loopback addresses, and others with allowHTTP: true" $name $plain) }}
{{-   end }}
{{-   $row := dict "name" $name "format" $receiver.format }}
{{-   range $field := list "url" "source" "reasons" "allowHTTP" }}
{{-     with get $receiver $field }}
{{-       $_ := set $row $field . }}
{{-     end }}
{{-   end }}
{{-   range $secret, $file := include "tenure.receiverFiles" $ | fromJson }}
{{-     if get $receiver $secret }}
{{-       $_ := set $row (get $fields $secret) (printf "/receivers/%s/%s" $name $file) }}
{{-     end }}
{{-   end }}
{{-   $rows = append $rows $row }}
{{- end }}
{{- $rows | toJson }}
{{- end }}

{{- /* The sources of the volume with the Secrets of receivers, as JSON. One that is missing keeps no pod from starting. */}}
{{- define "tenure.receiverSecrets" -}}
{{- $sources := list }}
{{- range $name, $receiver := .Values.keeper.receivers }}
{{-   range $field, $file := include "tenure.receiverFiles" $ | fromJson }}
{{-     with get $receiver $field }}
{{-       $item := dict "key" .key "path" (printf "%s/%s" $name $file) }}
{{-       $sources = append $sources (dict "secret" (dict "name" .name "optional" true "items" (list $item))) }}
{{-     end }}
{{-   end }}
{{- end }}
{{- $sources | toJson }}
{{- end }}

{{- /* waitForPodsReady as JSON. Takes the value. */}}
{{- define "tenure.waitForPodsReady" -}}
{{- $strategy := .requeuingStrategy | default dict }}
{{- if hasKey $strategy "backoffLimitTimeout" }}
{{-   fail "waitForPodsReady.requeuingStrategy.backoffLimitTimeout must be left out: set backoffLimitCount; kubectl tenure requeue-schedule shows how long that many returns take" }}
{{- end }}
{{- $base := $strategy.backoffBaseSeconds | default 1 }}
{{- $max := $strategy.backoffMaxSeconds | default $base }}
{{- if gt (int64 $base) (int64 $max) }}
{{-   fail (printf "waitForPodsReady.requeuingStrategy.backoffBaseSeconds must not be more than backoffMaxSeconds: %v is more than %v" $base $max) }}
{{- end }}
{{- . | toJson }}
{{- end }}

{{- /*
The authority of the callers of a part of the webhook, as JSON: its PEM, a Secret that has it, or neither. Takes
(list $ values name), with the values that have clientCA, and the name of that part.
*/}}
{{- define "tenure.clientCA" -}}
{{- $name := last . }}
{{- $values := index . 1 }}
{{- $pem := get $values "clientCA" }}
{{- $secret := get $values "clientCASecret" }}
{{- if and $pem $secret }}
{{-   fail (printf "%s.clientCA and %s.clientCASecret must not both be set: leave one of them out" $name $name) }}
{{- end }}
{{- dict "pem" $pem "secret" $secret | toJson }}
{{- end }}

{{- /* The same for schedulers, which must be known by something if they are answered. Takes $. */}}
{{- define "tenure.schedulerCA" -}}
{{- $ca := include "tenure.clientCA" (list . .Values.schedulerExtender "schedulerExtender") | fromJson }}
{{- if .Values.schedulerExtender.enabled }}
{{-   $known := or $ca.pem $ca.secret }}
{{-   $anybody := .Values.schedulerExtender.allowAnonymous }}
{{-   if and $known $anybody }}
{{-     fail "schedulerExtender.allowAnonymous must not be set beside schedulerExtender.clientCA or clientCASecret: leave one of them out" }}
{{-   end }}
{{-   if and $anybody .Values.webhook.hostNetwork (not .Values.webhook.url) }}
{{-     fail "schedulerExtender.allowAnonymous must not be set with webhook.hostNetwork: most networks ignore a NetworkPolicy for pods on the network of their node, so every client that reaches the node could ask. Set schedulerExtender.clientCA, see docs/kube-scheduler.md, or turn webhook.hostNetwork off" }}
{{-   end }}
{{-   if not (or $known $anybody) }}
{{-     fail "schedulerExtender.clientCA must be set: the authority of the client certificate that kube-scheduler shows, see docs/kube-scheduler.md. Without one the webhook would answer every client; if you want that, set schedulerExtender.allowAnonymous" }}
{{-   end }}
{{-   toJson $ca }}
{{- else }}
{{-   dict "pem" "" "secret" "" | toJson }}
{{- end }}
{{- end }}

{{- /* Takes $. */}}
{{- define "tenure.apiCA" -}}
{{- include "tenure.clientCA" (list . .Values.webhook "webhook") }}
{{- end }}

{{- /* Where an authority is mounted; empty if there is none. Takes (list ca name), with the CA as JSON. */}}
{{- define "tenure.clientCAFile" -}}
{{- $ca := first . | fromJson }}
{{- if $ca.pem -}}
/config/{{ last . }}-client-ca.crt
{{- else if $ca.secret -}}
/client-ca/{{ last . }}/ca.crt
{{- end }}
{{- end }}

{{- /* "true" if the webhook wakes pods that wait for the end of a floor, else "". */}}
{{- define "tenure.webhook.wakesUp" -}}
{{- if and .Values.schedulerExtender.enabled .Values.schedulerExtender.wakeUp }}true{{ end }}
{{- end }}

{{- /* "true" if the webhook responds to Evictions of lifecycle.k8s.io, else "". */}}
{{- define "tenure.webhook.respondsToEvictions" -}}
{{- if and .Values.guard.enabled .Values.guard.evictionResponder }}true{{ end }}
{{- end }}

{{- /*
The values of the guard, which is on, as JSON. Its exemptNamespaces have the release's own as well, and schedulerNames are
the names of its schedulers alone.
*/}}
{{- define "tenure.guard" -}}
{{- $guard := .Values.guard }}
{{- $names := list }}
{{- range $index, $scheduler := $guard.schedulers }}
{{-   $name := kindIs "string" $scheduler | ternary $scheduler (kindIs "map" $scheduler | ternary $scheduler dict).name }}
{{-   if and (hasPrefix "system:serviceaccount:" $name) (not (regexMatch "^system:serviceaccount:[a-z0-9]([-a-z0-9]*[a-z0-9])?:[a-z0-9]([-.a-z0-9]*[a-z0-9])?$" $name)) }}
{{-     fail (printf "guard.schedulers[%d]: %q is no service account: give each scheduler an entry of its own, of the form system:serviceaccount:NAMESPACE:NAME" $index $name) }}
{{-   end }}
{{-   if has $name $names }}
{{-     fail (printf "guard.schedulers[%d]: %q is in the list already" $index $name) }}
{{-   end }}
{{-   $names = append $names $name }}
{{- end }}
{{- $exempt := append $guard.exemptNamespaces (include "tenure.namespace" .) | uniq }}
{{- merge (dict "exemptNamespaces" $exempt "schedulerNames" $names) $guard | toJson }}
{{- end }}

{{- /* The values for Kueue as JSON. */}}
{{- define "tenure.kueue" -}}
{{- $kueue := .Values.kueue }}
{{- range $field := list "localQueue" "clusterQueue" }}
{{-   $seen := dict }}
{{-   range $kueue.queues }}
{{-     with get . $field }}
{{-       if hasKey $seen . }}
{{-         fail (printf "kueue.queues has two rows for %s %q: remove one" $field .) }}
{{-       end }}
{{-       $_ := set $seen . true }}
{{-     end }}
{{-   end }}
{{- end }}
{{- dict "enabled" $kueue.enabled "queues" ($kueue.queues | default list) | toJson }}
{{- end }}

{{- /* What is read of KAI-Scheduler's configuration, as JSON: configMap and shards, each only if it is. */}}
{{- define "tenure.kai" -}}
{{- $read := dict }}
{{- $map := .Values.kai.configMap }}
{{- if or $map.namespace $map.name }}
{{-   if not (and $map.namespace $map.name) }}
{{-     fail (printf "kai.configMap must have both namespace and name, or neither: they are %q and %q" ($map.namespace | default "") ($map.name | default "")) }}
{{-   end }}
{{-   $_ := set $read "configMap" (dict "namespace" $map.namespace "name" $map.name "key" ($map.key | default "config.yaml")) }}
{{- end }}
{{- if .Values.kai.shards }}
{{-   $_ := set $read "shards" true }}
{{- end }}
{{- toJson $read }}
{{- end }}

{{- /*
Annotations of the pods of a program, if there are any: the given ones, and one that restarts the program when kueue.queues
changes. Takes the root and the annotations.
*/}}
{{- define "tenure.podAnnotations" -}}
{{- $annotations := deepCopy (index . 1 | default dict) }}
{{- with (include "tenure.kueue" (index . 0) | fromJson).queues }}
{{-   $_ := set $annotations "checksum/kueue-queues" (toJson . | sha256sum) }}
{{- end }}
{{- with $annotations }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- /*
A CEL expression: true if the labels of a pod name a queue of Kueue's that stands for another. Takes the rows, and an
expression for the pod.
*/}}
{{- define "tenure.kueue.names" -}}
{{- $pod := index . 1 }}
{{- $locals := list }}
{{- $clusters := list }}
{{- range index . 0 }}
{{-   if .localQueue }}
{{-     $locals = append $locals .localQueue }}
{{-   else }}
{{-     $clusters = append $clusters .clusterQueue }}
{{-   end }}
{{- end }}
{{- $label := printf `%s.metadata.?labels[?"kueue.x-k8s.io/%%s"].orValue("")` $pod }}
{{- $local := printf $label "local-queue-name" }}
{{- /* the keeper, too, takes an empty label for none */}}
{{- $local = printf `(%s != "" ? %s : %s)` $local $local (printf $label "queue-name") }}
{{- $cluster := printf $label "cluster-queue-name" }}
{{- printf "%s.exists(queue, queue == %s || queue == request.namespace + \"/\" + %s) || %s in %s" (toJson $locals) $local $local $cluster (toJson $clusters) }}
{{- end }}

{{- /* The namespaces whose pods are never touched, as JSON: kube-system and the release's own are always among them. */}}
{{- define "tenure.exemptNamespaces" -}}
{{- concat (.Values.keeper.exemptNamespaces | default list) (list "kube-system" (include "tenure.namespace" .)) | uniq | toJson }}
{{- end }}

{{- /*
The kinds that are paused and that Kubernetes itself doesn't have, as rules without verbs. Kueue's aren't among them.
*/}}
{{- define "tenure.builtInKinds" -}}
{{- range .Files.Get "files/owners.yaml" | fromYamlArray }}
{{- if not (has .group (list "apps" "batch" "kueue.x-k8s.io")) }}
- apiGroups: [{{ .group | quote }}]
  resources: {{ values .kinds | uniq | sortAlpha | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The Workloads of jobs and pods that Kueue would start again, as the same; empty without Kueue. */}}
{{- define "tenure.kueueKinds" -}}
{{- if (include "tenure.kueue" . | fromJson).enabled }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
{{- end }}
{{- end }}

{{- /* The kinds of keeper.owners, as the same. */}}
{{- define "tenure.addedKinds" -}}
{{- range .Values.keeper.owners }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .resource }}]
{{- end }}
{{- end }}

{{- /* All of these but the native ones. */}}
{{- define "tenure.pausedKinds" -}}
{{- range list "tenure.builtInKinds" "tenure.kueueKinds" "tenure.addedKinds" }}
{{ include . $ }}
{{- end }}
{{- end }}

{{- /* An answer Deny, Audit or Off. YAML reads a bare Off as false. Takes the value. */}}
{{- define "tenure.answer" -}}
{{- kindIs "bool" . | ternary "Off" . }}
{{- end }}

{{- /*
The fields of a map that aren't empty, as JSON. A label selector without a requirement, such as {matchLabels: {}}, has none: it would
select everything. Takes the map.
*/}}
{{- define "tenure.setFields" -}}
{{- $set := dict }}
{{- range $field, $value := . }}
{{-   with $value }}
{{-     $_ := set $set $field . }}
{{-   end }}
{{- end }}
{{- $set | toJson }}
{{- end }}

{{- /* The values of the tenancy as JSON. */}}
{{- define "tenure.tenancy" -}}
{{- $tenancy := .Values.tenancy }}
{{- $access := $tenancy.queueAccess }}
{{- $required := include "tenure.setFields" $tenancy.requireQueue | fromJson }}
{{- dict
  "trustedWriters" ($tenancy.trustedWriters | default list)
  "requireQueue" $required
  "namespaces" (include "tenure.setFields" $tenancy.namespaces | fromJson | default $required)
  "defaultQueue" (include "tenure.setFields" $tenancy.defaultQueue | fromJson)
  "ownerReferences" (include "tenure.answer" $tenancy.ownerReferences)
  "queueAccess" (dict
    "mode" (include "tenure.answer" $access.mode)
    "podGroupWriters" ($access.podGroupWriters | default list)
    "grants" ($access.grants | default list))
  | toJson }}
{{- end }}

{{- /* A requirement of a namespace selector: neither kube-system nor the release's own. */}}
{{- define "tenure.tenancy.notOurs" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values:
    {{- list "kube-system" (include "tenure.namespace" .) | uniq | toYaml | nindent 4 }}
{{- end }}

{{- /* A CEL expression for the message about a changed field that must stay. Takes its optional path within the object. */}}
{{- define "tenure.tenancy.change" -}}
(object.{{ . }}.hasValue() ? "Invalid value: \"" + string(object.{{ . }}.value()) + "\": " : "Required value: ") +
(oldObject.{{ . }}.hasValue() ? "must stay \"" + string(oldObject.{{ . }}.value()) + "\"" : "can't be added")
{{- end }}

{{- define "tenure.configVolumeMount" -}}
- name: config
  mountPath: /config
  readOnly: true
{{- end }}

{{- define "tenure.configVolume" -}}
- name: config
  configMap:
    name: {{ include "tenure.config.name" . }}
{{- end }}

{{- /* Labels that never change over the life of a Deployment. Takes (list $ component). */}}
{{- define "tenure.selectorLabels" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ include "tenure.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{- /* Takes (list $ component). */}}
{{- define "tenure.labels" -}}
{{- $root := first . -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tenure.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tenure
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Takes (list $ component). */}}
{{- define "tenure.image" -}}
{{- $image := (first .).Values.image -}}
{{- $own := dig "image" dict (get (first .).Values (last .)) -}}
{{- with $own.repository }}{{ . }}{{ else }}{{ with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}tenure-{{ last . }}{{ end -}}
{{- with $own.digest }}@{{ . }}{{ else }}:{{ $own.tag | default $image.tag | default (first .).Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The part of a pod's spec that is the same for every component. Takes (list $ component). */}}
{{- define "tenure.podSpec" -}}
{{- $root := first . -}}
{{- $component := last . -}}
{{- $values := get $root.Values $component -}}
serviceAccountName: {{ include "tenure.serviceAccountName" . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- if $values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- include "tenure.podSecurityContext" $root }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Refuses texts among the values that can't be meant, all at once, with a sentence for people each. */}}
{{- define "tenure.checkValues" -}}
{{- $root := . }}
{{- $wrong := "" }}
{{- range $rule := .Files.Get "files/grammar.yaml" | required "files/grammar.yaml is missing from the chart" | fromYamlArray }}
{{-   range $rule.values }}
{{-     $wrong = include "tenure.checkValue" (list $rule $root.Values (splitList "." .) "") | print $wrong }}
{{-   end }}
{{- end }}
{{- with $wrong }}
{{-   fail (trimSuffix "\n" .) }}
{{- end }}
{{- end }}

{{- /*
Follows one path of a rule, and returns a line for each text that breaks the rule. Takes (list $rule $node $steps $path), where
$path is the way to the node.
*/}}
{{- define "tenure.checkValue" -}}
{{- $rule := first . }}
{{- $node := index . 1 }}
{{- $steps := index . 2 }}
{{- $path := last . }}
{{- $step := first $steps }}
{{- if not $steps }}
{{-   if kindIs "string" $node }}
{{-     if eq (hasKey $rule "not") (regexMatch ($rule.pattern | default $rule.not) $node) }}
{{-       printf "%s: Invalid value: %q: must %s\n" $path $node $rule.must }}
{{-     end }}
{{-   end }}
{{- else if and (eq $step "[]") (kindIs "slice" $node) }}
{{-   range $place, $item := $node }}
{{-     include "tenure.checkValue" (list $rule $item (rest $steps) (printf "%s[%d]" $path $place)) }}
{{-   end }}
{{- else if and (kindIs "map" $node) (has $step (list "{}" "(key)")) }}
{{-   range $key, $item := $node }}
{{-     $way := printf "%s.%s" $path $key | trimPrefix "." }}
{{-     if eq $step "{}" }}
{{-       include "tenure.checkValue" (list $rule $item (rest $steps) $way) }}
{{-     else }}
{{-       include "tenure.checkValue" (list $rule $key list $way) }}
{{-     end }}
{{-   end }}
{{- else if and (kindIs "map" $node) (hasKey $node $step) }}
{{-   include "tenure.checkValue" (list $rule (get $node $step) (rest $steps) (printf "%s.%s" $path $step | trimPrefix ".")) }}
{{- end }}
{{- end }}

{{- /*
The flags of the keeper, as "tenure.args" takes them.
*/}}
{{- define "tenure.keeper.flags" -}}
{{- $keeper := .Values.keeper }}
{{- $elects := not $keeper.dryRun }}
{{- /* the last two are T9k's names of the first two */}}
{{- $flags := list
  (list "admin-listen" (printf ":%v" $keeper.adminPort) "keeper.adminPort")
  (list "admin-tls-cert-file" (.Values.monitoring.tls.secretName | empty | ternary "" "/admin-certs/tls.crt") "monitoring.tls.secretName")
  (list "admin-tls-key-file" (.Values.monitoring.tls.secretName | empty | ternary "" "/admin-certs/tls.key") "monitoring.tls.secretName")
  (list "t9k-system-namespace" .Values.t9k.systemNamespace "t9k.systemNamespace")
  (list "runai-queue-version" (include "tenure.runaiQueueVersion" .) "queueVersion")
  (list "priority-class-threshold" $keeper.priorityClassThreshold "keeper.priorityClassThreshold")
  (list "schedulers" (join "," $keeper.schedulers) "keeper.schedulers")
  (list "exempt-namespaces" (include "tenure.exemptNamespaces" . | fromJsonArray | join ",") "keeper.exemptNamespaces")
  (list "max-termination-grace" $keeper.maxTerminationGrace "keeper.maxTerminationGrace")
  (list "retry-after" $keeper.retryAfter "keeper.retryAfter")
  (list "max-watch-staleness" $keeper.maxWatchStaleness "keeper.maxWatchStaleness")
  (list "threadiness" $keeper.threadiness "keeper.threadiness")
  (list "writes-per-second" $keeper.writesPerSecond "keeper.writesPerSecond")
  (list "burst" $keeper.burst "keeper.burst")
  (list "dry-run" $keeper.dryRun "keeper.dryRun")
  (list "config" "/config/tenure.yaml" "the values that docs/configuration.md names")
  (list "usage-config-map" (.Values.usage.enabled | empty | ternary "" (include "tenure.usage.name" .)) "usage")
  (list "leader-elect" (toString $elects))
  (list "leader-elect-lease-duration" (ternary $keeper.leaderElection.leaseDuration "" $elects) "keeper.leaderElection.leaseDuration")
  (list "leader-elect-renew-deadline" (ternary $keeper.leaderElection.renewDeadline "" $elects) "keeper.leaderElection.renewDeadline")
  (list "leader-elect-retry-period" (ternary $keeper.leaderElection.retryPeriod "" $elects) "keeper.leaderElection.retryPeriod")
  (list "leader-elect-resource-name" (ternary (include "tenure.keeper.name" .) "" $elects))
  (list "leader-elect-resource-namespace" (ternary (include "tenure.namespace" .) "" $elects))
  (list "leader-elect-identity" (ternary "$(POD_NAME)" "" $elects))
  (list "log-level" .Values.log.level "log.level")
  (list "log-format" .Values.log.format "log.format")
  (list "metrics-addr" "")
  (list "t9kSystemNamespace" "" "t9k.systemNamespace") }}
{{- toJson $flags }}
{{- end }}

{{- /* A flag on a command line, from a list of its name and its value. Empty if its value is null, empty or false. */}}
{{- define "tenure.flag" -}}
{{- $value := index . 1 }}
{{- if kindIs "bool" $value }}
{{-   if $value }}--{{ first . }}{{ end }}
{{- else if not (or (kindIs "invalid" $value) (eq (toString $value) "")) -}}
--{{ first . }}={{ $value }}
{{- end }}
{{- end }}

{{- /*
The arguments of a component: its flags, and those of its extraArgs, which may not be among them. Takes
(list $ component flags), where each flag is a list of its name, its value and, if there is one, the value of this chart
to change it by. A flag whose value is empty or false isn't passed; one whose value is true is passed without it.
*/}}
{{- define "tenure.args" -}}
{{- $component := index . 1 }}
{{- $arguments := list }}
{{- $taken := dict }}
{{- range $flag := last . }}
{{-   $name := first $flag }}
{{-   $_ := set $taken $name "the chart sets it by itself, so remove it" }}
{{-   if gt (len $flag) 2 }}
{{-     $_ := set $taken $name (printf "set %s instead" (last $flag)) }}
{{-   end }}
{{-   with include "tenure.flag" $flag }}
{{-     $arguments = append $arguments . }}
{{-   end }}
{{- end }}
{{- range $argument := (get (first .).Values $component).extraArgs }}
{{-   $name := regexFind "^[^=]*" $argument | trimPrefix "--" }}
{{-   with get $taken $name }}
{{-     fail (printf "%s.extraArgs must not have --%s: %s" $component $name .) }}
{{-   end }}
{{-   $_ := set $taken $name "the list has it already, so remove one" }}
{{-   $arguments = append $arguments $argument }}
{{- end }}
{{- toYaml $arguments }}
{{- end }}

{{- /* Pods of a component on many nodes and zones. Takes (list $ component). */}}
{{- define "tenure.spread" -}}
topologySpreadConstraints:
{{- with get (get (first .).Values (last .)) "topologySpreadConstraints" }}
  {{- range $constraint := . }}
  {{- $selector := dict "matchLabels" (include "tenure.selectorLabels" $ | fromYaml) }}
  - {{ merge (deepCopy $constraint) (dict "labelSelector" $selector) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- else }}
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tenure.selectorLabels" $ | nindent 8 }}
    # else the pods that a rollout is about to replace would count
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end }}

{{- /*
A new pod is there before an old one goes; on the network of nodes afterwards, because the old one has the ports. Takes
(list $ component).
*/}}
{{- define "tenure.strategy" -}}
{{- $onNode := (get (first .).Values (last .)).hostNetwork | default false }}
strategy:
  type: RollingUpdate
  rollingUpdate:
    maxUnavailable: {{ $onNode | ternary 1 0 }}
    maxSurge: {{ $onNode | ternary 0 1 }}
{{- end }}

{{- /* Refuses ports that two programs, or one of them twice, would take on one node. Takes $. */}}
{{- define "tenure.checkPorts" -}}
{{- $webhook := .Values.webhook }}
{{- $admin := $webhook.adminPort | int64 }}
{{- $ofKeeper := .Values.keeper.adminPort | int64 }}
{{- if eq ($webhook.port | int64) $admin }}
{{-   fail (printf "webhook.port and webhook.adminPort must differ: both are %d" $admin) }}
{{- end }}
{{- if and $webhook.hostNetwork .Values.keeper.hostNetwork (include "tenure.hasKeeper" .) }}
{{-   range $name, $port := dict "webhook.adminPort" $admin "webhook.port" ($webhook.port | int64) }}
{{-     if eq $port $ofKeeper }}
{{-       fail (printf "%s and keeper.adminPort must differ with hostNetwork, or no node has room for both programs: both are %d" $name $port) }}
{{-     end }}
{{-   end }}
{{- end }}
{{- end }}

{{- /* Refuses lifetimes with which the webhook wouldn't start. Takes webhook.certificate.selfManaged. */}}
{{- define "tenure.checkLifetimes" -}}
{{- $leaf := .validity }}
{{- $authority := .caValidity }}
{{- if lt (include "tenure.milliseconds" $leaf | int64) 3000 }}
{{-   fail (printf "webhook.certificate.selfManaged.validity must be at least 3s: it is %s" $leaf) }}
{{- end }}
{{- if ge (include "tenure.milliseconds" $leaf | int64) (include "tenure.milliseconds" $authority | int64) }}
{{-   fail (printf "webhook.certificate.selfManaged.validity must be shorter than caValidity: %s isn't shorter than %s" $leaf $authority) }}
{{- end }}
{{- /* the webhook has a new CA trusted for five minutes, which must be less than a sixth */}}
{{- if le (include "tenure.milliseconds" $authority | int64) 1800000 }}
{{-   fail (printf "webhook.certificate.selfManaged.caValidity must be longer than 30m: it is %s" $authority) }}
{{- end }}
{{- end }}

{{- /* Takes (list $ component). */}}
{{- define "tenure.podDisruptionBudget" -}}
{{- $root := first . -}}
{{- $component := last . -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include (printf "tenure.%s.name" $component) $root }}
  namespace: {{ include "tenure.namespace" $root }}
  labels:
    {{- include "tenure.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  # a pod that isn't ready serves no client, and must not block a drain
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "tenure.selectorLabels" . | nindent 6 }}
{{- end }}

{{- /* The security context of a pod. */}}
{{- define "tenure.podSecurityContext" -}}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Takes (list $ component). */}}
{{- define "tenure.probes" -}}
{{- $values := get (first .).Values (last .) }}
{{- $over := (first .).Values.monitoring.tls.secretName | empty | ternary dict (dict "scheme" "HTTPS") }}
{{- $live := dict "httpGet" (merge (dict "path" "/livez" "port" "admin") $over) }}
{{- $ready := dict "httpGet" (merge (dict "path" "/readyz" "port" "admin") $over) "periodSeconds" 5 -}}
livenessProbe:
  {{- mergeOverwrite $live ($values.livenessProbe | default dict) | toYaml | nindent 2 }}
readinessProbe:
  {{- mergeOverwrite $ready ($values.readinessProbe | default dict) | toYaml | nindent 2 }}
{{- end }}

{{- /* Where the API server finds a webhook outside of the cluster, without a path. */}}
{{- define "tenure.webhook.baseUrl" -}}
{{- .Values.webhook.url | trimSuffix "/validate" | trimSuffix "/" }}
{{- end }}

{{- /* The one host that the API server expects the certificate to be for. IPv6 comes without brackets. */}}
{{- define "tenure.webhook.host" -}}
{{- if .Values.webhook.url }}
{{- (urlParse .Values.webhook.url).hostname }}
{{- else }}
{{- include "tenure.webhook.name" . }}.{{ include "tenure.namespace" . }}.svc
{{- end }}
{{- end }}

{{- /* "true" if the host is an IP address, else "". Takes the host. */}}
{{- define "tenure.isIP" -}}
{{- if regexMatch `^[0-9.]+$|:` . }}true{{ end }}
{{- end }}

{{- /* The Secret with the webhook's tls.crt and tls.key. */}}
{{- define "tenure.webhook.secretName" -}}
{{- $certificate := .Values.webhook.certificate }}
{{- $mode := .Values.webhook.certificate.mode }}
{{- if eq $mode "existingSecret" }}
{{- required "webhook.certificate.existingSecret.name must be set when webhook.certificate.mode is existingSecret" $certificate.existingSecret.name }}
{{- else if eq $mode "certManager" }}
{{- /* not the name of the webhook's own, so that a change of mode never makes two writers of one Secret */}}
{{- include "tenure.webhook.name" . }}-cert-manager-tls
{{- else }}
{{- include "tenure.webhook.name" . }}-certificates
{{- end }}
{{- end }}

{{- /* The ConfigMap in which the webhook publishes the authorities of its certificate. */}}
{{- define "tenure.webhook.caConfigMap" -}}
{{- include "tenure.webhook.name" . }}-ca
{{- end }}

{{- /*
The objects that name the webhook, as JSON: validating, mutating and definitions, each a list of names. Those of parts that are
off are among them, or the pods of before would not know of them when a part is turned on.
*/}}
{{- define "tenure.webhook.configured" -}}
{{- $name := include "tenure.webhook.name" . }}
{{- $validating := list $name (printf "%s-guard" $name) (printf "%s-owners" $name) }}
{{- $definitions := include "tenure.servesV2" . | empty | ternary list (list "queues.scheduling.run.ai") }}
{{- dict "validating" $validating "mutating" (list $name) "definitions" $definitions | toJson }}
{{- end }}

{{- /*
The flags for certificates that the webhook makes by itself, as JSON: a list as tenure.args takes it. Empty in other modes.
*/}}
{{- define "tenure.webhook.certificateFlags" -}}
{{- $flags := list }}
{{- if eq .Values.webhook.certificate.mode "selfManaged" }}
{{-   $configured := include "tenure.webhook.configured" . | fromJson }}
{{-   $own := .Values.webhook.certificate.selfManaged }}
{{-   include "tenure.checkLifetimes" $own }}
{{-   $flags = list
  (list "self-managed-secret" (include "tenure.webhook.secretName" .))
  (list "self-managed-namespace" (include "tenure.namespace" .))
  (list "self-managed-lease" (include "tenure.webhook.name" .))
  (list "self-managed-config-map" (include "tenure.webhook.caConfigMap" .))
  (list "self-managed-validity" $own.validity "webhook.certificate.selfManaged.validity")
  (list "self-managed-ca-validity" $own.caValidity "webhook.certificate.selfManaged.caValidity")
  (list "webhook-hosts" (include "tenure.webhook.host" .))
  (list "validating-configurations" (join "," $configured.validating))
  (list "mutating-configurations" (join "," $configured.mutating))
  (list "converted-definitions" (join "," $configured.definitions)) }}
{{- end }}
{{- toJson $flags }}
{{- end }}

{{- /* The CA (base64 of PEM) that the API server is to trust; empty if cert-manager or the webhook tells it. */}}
{{- define "tenure.webhook.caBundle" -}}
{{- if eq .Values.webhook.certificate.mode "existingSecret" }}
{{- include "tenure.webhook.existingCA" . }}
{{- end }}
{{- end }}

{{- /* How the API server calls the webhook. Takes (list $ path). */}}
{{- define "tenure.webhook.clientConfig" -}}
{{- $root := first . -}}
{{- if $root.Values.webhook.url -}}
url: {{ include "tenure.webhook.baseUrl" $root }}{{ last . }}
{{- else -}}
service:
  name: {{ include "tenure.webhook.name" $root }}
  namespace: {{ include "tenure.namespace" $root }}
  port: 443
  path: {{ last . }}
{{- end }}
{{- with include "tenure.webhook.caBundle" $root }}
caBundle: {{ . }}
{{- end }}
{{- end }}

{{- /* "true" if Helm installs a definition of queues, else "". Takes (list $ family). */}}
{{- define "tenure.installsCRD" -}}
{{- $crds := (first .).Values.crds }}
{{- if and $crds.install (get $crds (last .)) }}true{{ end }}
{{- end }}

{{- /*
"true" if the definition of queues of the run.ai family is Tenure's, else "": then it is KAI-Scheduler's. The cluster is
asked about one that Helm doesn't install and that queueVersion says nothing about.
*/}}
{{- define "tenure.isOurCRD" -}}
{{- if or (include "tenure.installsCRD" (list . "runai")) (eq (toString .Values.queueVersion) "v3alpha1") -}}
true
{{- else if .Values.crds.runai -}}
{{-   $served := (include "tenure.versionsInCluster" . | fromJson).served }}
{{- /* none: it isn't there yet, or there is no cluster to ask */}}
{{-   if or (not $served) (has "v3alpha1" $served) -}}
true
{{-   end }}
{{- end }}
{{- end }}

{{- /*
The versions of queues of the run.ai family that the cluster serves, and those in which it has stored queues, as JSON. Both are
empty where there is no definition yet, or no cluster to ask.
*/}}
{{- define "tenure.versionsInCluster" -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "queues.scheduling.run.ai" }}
{{- $served := list }}
{{- range dig "spec" "versions" list $definition }}
{{-   if .served }}
{{-     $served = append $served .name }}
{{-   end }}
{{- end }}
{{- dict "served" $served "stored" (dig "status" "storedVersions" list $definition) | toJson }}
{{- end }}

{{- /*
"true" if Tenure's definition of queues of the run.ai family serves v2 beside v3alpha1, and the webhook converts, else "". By
itself it does so only where the cluster does already: kubectl prefers v2, which lacks Tenure's fields.
*/}}
{{- define "tenure.servesV2" -}}
{{- $asked := toString .Values.crds.serveV2 }}
{{- if and (eq $asked "true") (not .Values.crds.runai) }}
{{-   fail "crds.serveV2 must not be true where crds.runai is false: the CRD of queues is KAI-Scheduler's, which serves v2 by itself. Leave crds.serveV2 out" }}
{{- end }}
{{- if include "tenure.isOurCRD" . }}
{{-   $found := include "tenure.versionsInCluster" . | fromJson }}
{{-   $reads := eq (toString .Values.queueVersion) "v2" }}
{{-   $stores := has "v2" $found.stored }}
{{-   if and (eq $asked "false") $reads }}
{{-     fail "crds.serveV2 must not be false where queueVersion is v2: set queueVersion to auto" }}
{{-   end }}
{{-   if and (eq $asked "false") $stores }}
{{-     fail "crds.serveV2 must not be false yet: status.storedVersions of CRD queues.scheduling.run.ai has v2, and only the webhook converts what is stored in it. First write all queues as v3alpha1: docs/queue-versions.md, \"From KAI's CRD to Tenure's\"" }}
{{-   end }}
{{-   $serves := has "v2" $found.served }}
{{-   if and (eq $asked "false") $serves (not (include "tenure.installsCRD" (list . "runai"))) }}
{{-     fail "crds.serveV2 must not be false yet: CRD queues.scheduling.run.ai serves v2, and Helm doesn't install it. First replace it with that of the chart: docs/queue-versions.md, \"Applied with kubectl\"" }}
{{-   end }}
{{-   $needed := or $reads $stores $serves }}
{{-   if or (eq $asked "true") (and $needed (ne $asked "false")) }}true{{ end }}
{{- end }}
{{- end }}

{{- /*
The version in which queues of the run.ai family are read: Tenure's, or that of KAI-Scheduler, whose definition has no
other.
*/}}
{{- define "tenure.runaiQueueVersion" -}}
{{- $version := .Values.queueVersion }}
{{- eq $version "auto" | ternary (include "tenure.isOurCRD" . | empty | ternary "v2" "v3alpha1") $version }}
{{- end }}

{{- /*
A merge patch, as JSON, by which Tenure's definition of queues names the webhook of this release as their converter; empty
where Helm writes that, and where the webhook converts no queues.
*/}}
{{- define "tenure.conversionPatch" -}}
{{- if and (include "tenure.servesV2" .) (not (include "tenure.installsCRD" (list . "runai"))) }}
{{-   $clientConfig := include "tenure.webhook.clientConfig" (list . "/convert") | fromYaml }}
{{- /* there must be but one of these */}}
{{-   $_ := set $clientConfig (hasKey $clientConfig "url" | ternary "service" "url") nil }}
{{-   $injected := eq .Values.webhook.certificate.mode "certManager" | ternary (printf "%s/%s" (include "tenure.namespace" .) (include "tenure.webhook.name" .)) nil }}
{{-   $metadata := dict "annotations" (dict "cert-manager.io/inject-ca-from" $injected) }}
{{-   dict "metadata" $metadata "spec" (dict "conversion" (dict "webhook" (dict "clientConfig" $clientConfig))) | toJson }}
{{- end }}
{{- end }}

{{- /* The CA (base64 of PEM) of a Secret that the chart doesn't make. */}}
{{- define "tenure.webhook.existingCA" -}}
{{- $existing := .Values.webhook.certificate.existingSecret }}
{{- $name := include "tenure.webhook.secretName" . }}
{{- if $existing.caBundle }}
{{- b64enc $existing.caBundle }}
{{- else }}
{{-   $secret := lookup "v1" "Secret" (include "tenure.namespace" .) $name }}
{{-   $message := printf "webhook.certificate.existingSecret.caBundle must be set: Helm finds no ca.crt in Secret %s of namespace %s. Set caBundle to the CA in PEM, or add ca.crt to the Secret" $name (include "tenure.namespace" .) }}
{{-   required $message (dig "data" "ca.crt" "" $secret) }}
{{- end }}
{{- end }}
