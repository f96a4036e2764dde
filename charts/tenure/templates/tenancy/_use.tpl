{{- /*
The right to "use" an object, for policies of the API server. An account or a user has it in the namespace of the request. The account
of a pod counts for each user who asks; the user counts too, but for service accounts of other namespaces: controllers and operators may do
everything, and do what a tenant asks of them.
*/}}

{{- /* The variables. Another one, named, has the service account that the pod names, or nothing. */}}
{{- define "tenure.tenancy.user" -}}
- name: account
  expression: >-
    variables.named == "" ? "default" : variables.named
- name: isForeign
  expression: >-
    {{ include "tenure.tenancy.isForeign" . | nindent 4 | trim }}
{{- end }}

{{- /* A CEL expression: true for a controller's account: of another namespace, or that of all of Kubernetes' own. */}}
{{- define "tenure.tenancy.isForeign" -}}
(request.userInfo.username == "system:kube-controller-manager" || request.userInfo.username.startsWith("system:serviceaccount:") &&
!request.userInfo.username.startsWith("system:serviceaccount:" + request.namespace + ":"))
{{- end }}

{{- /*
A CEL expression: true if the object names a controller that it didn't name before. The whole reference counts: one of a kind that isn't
asked about could else become one that is. References that stay are compared at once: a search among tens of thousands costs more than the
API server allows, and then every write would be refused, also those of kubelets and of the keeper. The two searches for a controller
filter, which costs half as much as exists: both together stay below that limit.
*/}}
{{- define "tenure.tenancy.namesController" -}}
{{- $controllers := `.?metadata.?ownerReferences.orValue([]).filter(owner, owner.?controller.orValue(false))` -}}
(oldObject == null || object.?metadata.?ownerReferences != oldObject.?metadata.?ownerReferences) &&
object{{ $controllers }}.exists(new, oldObject == null || !oldObject{{ $controllers }}.exists(old,
old.uid == new.uid && old.name == new.name && old.kind == new.kind && old.apiVersion == new.apiVersion))
{{- end }}

{{- /* A CEL expression: true if account or user may use an object. Takes its group, its resource, and an expression for its name. */}}
{{- define "tenure.tenancy.mayUse" -}}
{{- $use := printf `group(%s).resource(%s).namespace(request.namespace).name(%s).check("use").allowed()` (index . 0 | toJson) (index . 1 | toJson) (index . 2) -}}
authorizer.serviceAccount(request.namespace, variables.account).{{ $use }} ||
!variables.isForeign && authorizer.{{ $use }}
{{- end }}

{{- /* The end of a CEL expression for a message about an object that was named. Takes its resource and its group. */}}
{{- define "tenure.tenancy.mayNotUse" -}}
" requires the right to use {{ index . 0 }} of group {{ index . 1 }} in namespace \"" + request.namespace +
"\", which service account \"" + variables.account + "\"" +
(variables.isForeign ? " doesn't have" : " and user \"" + request.userInfo.username + "\" don't have") +
": name another, or have the right granted by {{ eq (index . 0) "queues" | ternary "tenancy.queueAccess.grants of Tenure's chart or " "" }}a RoleBinding"
{{- end }}

{{- /* A match condition: no mirror of a static pod, which an administrator has put on the node. */}}
{{- define "tenure.tenancy.noMirror" -}}
- name: is-no-mirror
  expression: >-
    !(request.userInfo.username.startsWith("system:node:") &&
    object.metadata.?annotations[?"kubernetes.io/config.mirror"].hasValue())
{{- end }}

{{- /* A CEL expression: true if a pod names a queue, or a PodGroup that may name one. Takes the root and the pod: object or oldObject. */}}
{{- define "tenure.tenancy.namesQueue" -}}
{{- $pod := index . 1 -}}
({{ $pod }}.metadata.?annotations[?"pod-group-name"].orValue("") != "" ||
["kai.scheduler/queue", "scheduler.tensorstack.dev/group-name", "scheduler.tensorstack.dev/queue"]
.exists(key, {{ $pod }}.metadata.?labels[?key].orValue("") != "")
{{- with (include "tenure.kueue" (index . 0) | fromJson).queues }} ||
{{ include "tenure.kueue.names" (list . $pod) }}
{{- end }})
{{- end }}
