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

{{- define "tenure.webhook.name" -}}
{{- include "tenure.fullname" . }}-webhook
{{- end }}

{{- define "tenure.keeper.name" -}}
{{- include "tenure.fullname" . }}-keeper
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
{{- end }}

{{- /* Takes (list $ component). */}}
{{- define "tenure.image" -}}
{{- $image := (first .).Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
tenure-{{ last . }}:{{ default (first .).Chart.AppVersion $image.tag }}
{{- end }}

{{- /* The part of a pod's spec that is the same for every component. Takes (list $ component). */}}
{{- define "tenure.podSpec" -}}
{{- $root := first . -}}
{{- $component := last . -}}
{{- $values := get $root.Values $component -}}
serviceAccountName: {{ include "tenure.fullname" $root }}-{{ $component }}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
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

{{- define "tenure.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end }}

{{- define "tenure.probes" -}}
livenessProbe:
  httpGet:
    path: /live
    port: admin
readinessProbe:
  httpGet:
    path: /ready
    port: admin
  periodSeconds: 5
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
{{- include "tenure.webhook.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}
{{- end }}

{{- /* "true" if the host is an IP address, else "". Takes the host. */}}
{{- define "tenure.isIP" -}}
{{- if regexMatch `^[0-9.]+$|:` . }}true{{ end }}
{{- end }}

{{- /* The Secret with the webhook's tls.crt and tls.key. */}}
{{- define "tenure.webhook.secretName" -}}
{{- $certificate := .Values.webhook.certificate }}
{{- if eq $certificate.mode "existingSecret" }}
{{- required "webhook.certificate.existingSecret.name must be set when webhook.certificate.mode is existingSecret" $certificate.existingSecret.name }}
{{- else if eq $certificate.mode "certManager" }}
{{- /* not the name of the generated one, so that a change of mode never makes two writers of one Secret */}}
{{- include "tenure.webhook.name" . }}-cert-manager-tls
{{- else }}
{{- include "tenure.webhook.name" . }}-tls
{{- end }}
{{- end }}

{{- /*
The data (base64) of the generated Secret, as JSON: as it is in the cluster, or new. Every call makes another pair, so
all that is to fit together must come from one call.
*/}}
{{- define "tenure.webhook.generatedData" -}}
{{- $host := include "tenure.webhook.host" . }}
{{- $name := include "tenure.webhook.secretName" . }}
{{- $kept := lookup "v1" "Secret" .Release.Namespace $name }}
{{- if $kept }}
{{-   $renew := printf "To have a new pair made, delete it and run the command again: kubectl -n %s delete secret %s" .Release.Namespace $name }}
{{-   $madeFor := dig "metadata" "annotations" "tenure.dev/certificate-host" "" $kept }}
{{-   if ne $madeFor $host }}
{{-     fail (printf "Secret %s holds a certificate for %q, and the API server will call the webhook as %q. %s" $name $madeFor $host $renew) }}
{{-   end }}
{{-   range $key := list "ca.crt" "tls.crt" "tls.key" }}
{{-     $missing := printf "Secret %s has no %s. %s" $name $key $renew }}
{{-     $_ := required $missing (dig "data" $key "" $kept) }}
{{-   end }}
{{-   toJson $kept.data }}
{{- else }}
{{-   $days := int .Values.webhook.certificate.generated.validityDays }}
{{-   $cn := include "tenure.webhook.name" . }}
{{-   $ips := list }}
{{-   $dnsNames := list $host }}
{{-   if include "tenure.isIP" $host }}
{{-     $ips = list $host }}
{{-     $dnsNames = list }}
{{-   end }}
{{- /* the CA's key isn't kept: what it signed here is all that it ever vouches for */}}
{{-   $ca := genCAWithKey (printf "%s-ca" $cn) $days (genPrivateKey "ecdsa") }}
{{-   $pair := genSignedCertWithKey $cn $ips $dnsNames $days $ca (genPrivateKey "ecdsa") }}
{{-   dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $pair.Cert) "tls.key" (b64enc $pair.Key) | toJson }}
{{- end }}
{{- end }}

{{- /* The CA (base64 of PEM) of a Secret that somebody else made. */}}
{{- define "tenure.webhook.existingCA" -}}
{{- $existing := .Values.webhook.certificate.existingSecret }}
{{- $name := include "tenure.webhook.secretName" . }}
{{- if $existing.caBundle }}
{{- b64enc $existing.caBundle }}
{{- else }}
{{-   $secret := lookup "v1" "Secret" .Release.Namespace $name }}
{{-   $message := printf "webhook.certificate.existingSecret.caBundle must be set: Helm finds no ca.crt in Secret %s of namespace %s to take instead" $name .Release.Namespace }}
{{-   required $message (dig "data" "ca.crt" "" $secret) }}
{{- end }}
{{- end }}
