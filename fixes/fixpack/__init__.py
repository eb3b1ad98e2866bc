"""The fix pack: changes to the packages installed in a container, all of a profile or none.

``editing`` finds places in Python source by their structure; ``image`` finds the packages and says which they are; ``catalog``
reads profiles and fixes; ``store`` keeps what was replaced and writes files so that a crash at any moment leaves each one whole;
``work`` plans and carries out.  Standard library of Python 3.10 alone.
"""
