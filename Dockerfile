# One image for each server:
#   docker build --target webhook -t tenure-webhook:0.1.0 .
#   docker build --target keeper -t tenure-keeper:0.1.0 .
# The plugin as a file for Linux, target/kubectl-tenure:
#   docker build --target plugin --output target .

# On Alpine, Rust links statically with musl by default.
FROM rust:1.95-alpine AS source
# ring is in part C and assembly
RUN apk add --no-cache gcc musl-dev
WORKDIR /src
COPY . .

FROM source AS build-webhook
RUN cargo build --release --locked -p tenure-webhook

FROM source AS build-keeper
RUN cargo build --release --locked -p tenure-keeper

FROM source AS build-plugin
RUN cargo build --release --locked -p tenure-cli

FROM scratch AS plugin
COPY --from=build-plugin /src/target/release/kubectl-tenure /kubectl-tenure

# No CA roots: in a cluster, the CA of the API server comes with the service account.
FROM scratch AS webhook
COPY --from=build-webhook /src/target/release/tenure-webhook /tenure-webhook
USER 65532:65532
EXPOSE 9443 8080
ENTRYPOINT ["/tenure-webhook"]

FROM scratch AS keeper
COPY --from=build-keeper /src/target/release/tenure-keeper /tenure-keeper
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/tenure-keeper"]
