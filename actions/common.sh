# Sourced by the scripts of the actions. Works with bash 3.2, which macOS has. Inputs come in environment variables only.

# fail WORDS...: one error line for people and for GitHub. Nothing in the words can start another workflow command.
fail() {
  local message="$*"
  message=${message//'%'/%25}
  message=${message//$'\r'/%0D}
  message=${message//$'\n'/%0A}
  printf '::error::%s\n' "$message"
  exit 1
}

# output NAME VALUE: an output of the step, in here-document form with a delimiter that is not in the value.
output() {
  local delimiter
  delimiter="EOF_$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
  case "$2" in *"$delimiter"*) fail "the output $1 holds its own delimiter" ;; esac
  printf '%s<<%s\n%s\n%s\n' "$1" "$delimiter" "$2" "$delimiter" >>"$GITHUB_OUTPUT"
}

# add_options OPTION VALUES: appends OPTION=VALUE to the array `arguments` for each word of VALUES (spaces, commas, new lines).
add_options() {
  local value
  while IFS= read -r value; do
    if [ -n "$value" ]; then arguments+=("$1=$value"); fi
  done < <(printf '%s' "$2" | tr -s ',[:space:]' '\n'; echo)
}

# require_name WHAT VALUE: the value is usable in an artifact's name and holds no dot, so that no name is a prefix of another.
require_name() {
  case "$2" in
    '' | -* | *[!a-z0-9-]*) fail "$1 is '$2': use lower-case letters, digits and -, and begin with a letter or digit" ;;
  esac
}

# refuse_foreign_code: a pull request may be anybody's code, so it never runs on a machine of ours.
refuse_foreign_code() {
  case "${GITHUB_EVENT_NAME:-}" in
    pull_request*)
      if [ "${RUNNER_ENVIRONMENT:-unknown}" != github-hosted ]; then
        fail "event $GITHUB_EVENT_NAME on a runner that is '${RUNNER_ENVIRONMENT:-unknown}': a pull request runs on" \
          "GitHub's runners only. Plan it with the event pull-request."
      fi
      ;;
  esac
}
