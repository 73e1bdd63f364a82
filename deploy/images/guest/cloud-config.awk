# The parts of #cloud-config that the tiny guest supports: hostname, bootcmd and runcmd. A command is
# a line of shell, or a list in brackets.

function bare(text) {
    sub(/^[ \t]+/, "", text)
    sub(/[ \t]+$/, "", text)
    if (text ~ /^".*"$/ || text ~ /^'.*'$/) text = substr(text, 2, length(text) - 2)
    return text
}

function command(text,    parts, count, i, line) {
    text = bare(text)
    if (text !~ /^\[.*\]$/) return text
    count = split(substr(text, 2, length(text) - 2), parts, ",")
    for (i = 1; i <= count; i++) {
        part = bare(parts[i])
        gsub(/'/, "'\\''", part)
        line = line (i > 1 ? " " : "") "'" part "'"
    }
    return line
}

BEGIN { dir = "/run/cloud-init/" }

/^(hostname|fqdn)[ \t]*:/ {
    value = $0
    sub(/^[^:]*:/, "", value)
    print bare(value) >(dir "hostname")
}
/^[A-Za-z_]+[ \t]*:/ {
    section = $1
    sub(/:.*/, "", section)
    next
}
section ~ /^(bootcmd|runcmd)$/ && /^[ \t]*- / {
    line = $0
    sub(/^[ \t]*- /, "", line)
    file = dir (section == "bootcmd" ? "boot" : "final")
    if (!(file in begun)) print "#!/bin/sh" >file
    begun[file] = 1
    print command(line) >file
}
