/* quota_script.h: the Lua script of shared quotas (quota_script.lua says what it takes and answers). */
#ifndef INFERD_EDGE_QUOTA_SCRIPT_H
#define INFERD_EDGE_QUOTA_SCRIPT_H

extern const char QUOTA_SCRIPT[];

#endif
