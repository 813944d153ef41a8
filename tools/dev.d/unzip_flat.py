"""unzip_flat.py ARCHIVE PATTERN FOLDER: the archive's files that match PATTERN, without their folders, into FOLDER."""
import fnmatch
import os
import shutil
import sys
import zipfile


def main() -> int:
    archive, pattern, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    found = 0
    with zipfile.ZipFile(archive) as z:
        for name in z.namelist():
            if fnmatch.fnmatch(name, pattern) and not name.endswith("/"):
                with z.open(name) as src, open(os.path.join(folder, os.path.basename(name)), "wb") as dst:
                    shutil.copyfileobj(src, dst)
                found += 1
    if not found:
        sys.exit(f"unzip_flat: {os.path.basename(archive)} has no {pattern}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
