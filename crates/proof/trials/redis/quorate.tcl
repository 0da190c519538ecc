# Adapts Redis' test suite to Quorate. The suite reads this file after its own procedures of tests/support.
#
# Redis stores small values in another encoding than large ones. Its tests move the limits between encodings with CONFIG
# SET, often between tests, where an error ends the whole unit. Quorate has no such encodings, so this file answers
# those settings and never sends them. All other commands go to the node.
rename ::redis::__dispatch__raw__ ::redis::__dispatch__node__

proc ::redis::__dispatch__raw__ {id method argv} {
    if {[string equal -nocase $method config] && [string equal -nocase [lindex $argv 0] set]} {
        set layout {^((hash|list|set|zset)-max-(listpack|ziplist|intset)-(entries|value|size)|list-compress-depth|stream-node-max-entries)$}
        if {[regexp -nocase $layout [lindex $argv 1]]} {
            return OK
        }
    }
    ::redis::__dispatch__node__ $id $method $argv
}
