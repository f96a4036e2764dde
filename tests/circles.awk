# Prints the circles of files of a crate: files each of which reaches each other one by paths such as `crate::queue::Queue`.
#
# Reads the lines of non-test code as `figures` makes them: file, number, text. A path leads to the file that defines the item,
# also through re-exports. `mod x;`, a re-export of which the file makes no other use, and the call of a method lead nowhere.
# Prints circles of more than `most` files: of each file, the files of the circle that it uses, and what of them.
BEGIN { FS = "\t"; word = "[A-Za-z_][A-Za-z0-9_]*"; scope = "(pub(\\([a-z: ]+\\))? )?" }

# crates/cli/src/list/view.rs is module cli::list::view
$1 != file {
    file = $1; files[++count] = file; in_use = 0
    module = file
    sub(/^crates\//, "", module); sub(/\/src\//, "/", module); sub(/(\/(lib|main|mod))?\.rs$/, "", module); gsub("/", "::", module)
    of[file] = module
    if (!(module in at) || file !~ /main\.rs$/) at[module] = file
}
{
    line = $3
    gsub(/'(\\.|[^'\\])'/, "", line); gsub(/"(\\.|[^"\\])*"/, "", line); sub(/\/\/.*/, "", line)
}
!in_use && line ~ ("^ *" scope "use ") {
    in_use = 1; tree = ""; trees++
    user[trees] = file; is_export[trees] = line ~ /^ *pub/
    sub("^ *" scope "use ", "", line)
}
in_use {
    tree = tree line
    if (line ~ /;/) { in_use = 0; sub(/;.*/, "", tree); use[trees] = tree }
    next
}
match(line, "^" scope "(const |async |unsafe )*(struct|enum|trait|type|fn|static|const|mod|macro_rules!) " word) {
    item = substr(line, RSTART, RLENGTH); sub(/.* /, "", item)
    if (line !~ /mod [a-z0-9_]+;/) defines[module, item] = 1
}
{ code[file] = code[file] " " line }

# notes each path of a tree: `a::{self, b::c}` is a and a::b::c
function expand(number, prefix, tree,    from, i, depth, c) {
    gsub(/^ +| +$/, "", tree)
    if ((from = index(tree, "{") + 1) == 1) { if (tree != "") note(number, prefix tree); return }
    prefix = prefix substr(tree, 1, from - 2)
    for (i = from; i <= length(tree); i++) {
        c = substr(tree, i, 1)
        if (depth == 0 && (c == "," || c == "}")) { expand(number, prefix, substr(tree, from, i - from)); from = i + 1 }
        depth += (c == "{") - (c == "}")
    }
}
function note(number, path,    name) {
    name = path
    if (sub(/.* as /, "", name)) sub(/ as .*/, "", path)
    sub(/::self$/, "", path); sub(/::self$/, "", name); sub(/.*::/, "", name)
    paths[++uses] = path; names[uses] = name; by[uses] = number
    brought[of[user[number]], name] = path
}

# returns the file to which a path leads from a module: "" of another crate, "module" of a module as a whole
function resolve(module, path,    parts, last, i, part, rest) {
    last = split(path, parts, "::")
    for (i = 1; i <= last; i++) {
        part = parts[i]
        if (part == "crate") sub(/::.*/, "", module)
        else if (part == "super") sub(/::[^:]*$/, "", module)
        else if ((module "::" part) in at) module = module "::" part
        else if ((module, part) in defines) return at[module]
        else if (part != "self") {
            # an item of another crate, or one that a macro makes
            if (!((module, part) in brought) || index(brought[module, part] "::", part "::") == 1) return i > 1 ? at[module] : ""
            for (rest = ""; i < last;) rest = rest "::" parts[++i]
            return resolve(module, brought[module, part] rest)
        }
    }
    return "module"
}
function edge(from, path,    to, name) {
    to = resolve(of[from], path)
    name = path; sub(/.*::/, "", name)
    if (to == "" || to == "module" || to == from || (from, to, name) in is_known) return
    is_known[from, to, name] = 1
    if (!((from, to) in edges)) targets[from] = targets[from] " " to
    edges[from, to] = edges[from, to] " " name
}
function reach(root, from,    list, last, i) {
    if ((root, from) in reaches) return
    reaches[root, from] = 1
    last = split(targets[from], list, " ")
    for (i = 1; i <= last; i++) reach(root, list[i])
}
END {
    for (i = 1; i <= trees; i++) expand(i, "", use[i])
    for (i = 1; i <= uses; i++) {
        file = user[by[i]]
        if (!is_export[by[i]] || code[file] ~ ("(^|[^A-Za-z0-9_])" names[i] "([^A-Za-z0-9_]|$)")) edge(file, paths[i])
    }
    for (i = 1; i <= count; i++)
        for (text = code[files[i]]; match(text, word "(::" word ")+"); text = substr(text, RSTART + RLENGTH))
            edge(files[i], substr(text, RSTART, RLENGTH))
    for (i = 1; i <= count; i++) reach(files[i], files[i])
    for (i = 1; i <= count; i++) {
        if (files[i] in is_seen) continue
        size = 0
        for (j = i; j <= count; j++)
            if ((files[i], files[j]) in reaches && (files[j], files[i]) in reaches) { circle[++size] = files[j]; is_seen[files[j]] = 1 }
        if (size > largest) largest = size
        if (size > most) print_circle()
    }
    printf "  the largest has %d\n", largest
}
function print_circle(    i, j, name) {
    printf "  %d files\n", size
    for (i = 1; i <= size; i++) {
        printf "    %s:", circle[i]
        for (j = 1; j <= size; j++) {
            name = circle[j]; sub(/.*\/src\//, "", name)
            if ((circle[i], circle[j]) in edges) printf " %s (%s)", name, substr(edges[circle[i], circle[j]], 2)
        }
        print ""
    }
}
