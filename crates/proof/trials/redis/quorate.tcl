# What Redis' test suite is told of Quorate; read by the suite after all of its own procedures of tests/support.
#
# Redis lays out small values in another way than large ones, and its tests move the limits between the layouts with
# CONFIG SET, often between tests, where an error ends the whole unit. Quorate has no such layouts: those settings are
# answered here, and never sent. Everything else that a test says goes to the node.
rename ::redis::__dispatch__raw__ ::redis::__dispatch__node__

proc ::redis::__dispatch__raw__ {id method argv} {
    if {[string equal -nocase $method config] && [string equal -nocase [lindex $argv 0] set]} {
        set layout {^((hash|list|set|zset)-max-(listpack|ziplist|intset)-(entries|value|size)|list-compress-depth)$}
        if {[regexp -nocase $layout [lindex $argv 1]]} {
            return OK
        }
    }
    ::redis::__dispatch__node__ $id $method $argv
}
